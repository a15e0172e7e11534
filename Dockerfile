# syntax=docker/dockerfile:1

# Build the static program. Modules are a layer of their own: they change less often than the code.
FROM golang:1.26 AS build
WORKDIR /src
COPY go.mod go.sum ./
RUN --mount=type=cache,target=/go/pkg/mod go mod download
COPY . .
RUN --mount=type=cache,target=/go/pkg/mod --mount=type=cache,target=/root/.cache/go-build \
    CGO_ENABLED=0 go build -trimpath -ldflags='-s -w' -o /out/seckill . \
    && mkdir -p /out/data

# Run it with nothing around it: no shell, no package manager, no root. The certificates are for TLS to Redis, Kafka,
# the database, a key set and web hooks.
FROM scratch
COPY --from=build /etc/ssl/certs/ca-certificates.crt /etc/ssl/certs/
COPY --from=build /out/seckill /seckill
# The one folder it may write to, for a mounted volume.
COPY --from=build --chown=65532:65532 /out/data /data
USER 65532:65532
WORKDIR /data
# gateway, pusher, and the health and metrics of consumer and reconciler.
EXPOSE 8080 8081 8082 8083
ENTRYPOINT ["/seckill"]
