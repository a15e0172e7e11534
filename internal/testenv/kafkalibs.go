package testenv

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"syscall"
	"time"
)

// KafkaVersion is the broker that the tests run. From 4.0.1 on (not 4.0.0) a broker takes the JoinGroup version that
// kafka-go sends; this one runs on Java 17.
const KafkaVersion = "4.4.0"

// kafkaPOM asks Maven for the broker, everything it needs, and a logger that writes to standard error. The logger's
// version is the line of slf4j that the broker uses.
const kafkaPOM = `<project xmlns="http://maven.apache.org/POM/4.0.0">
  <modelVersion>4.0.0</modelVersion>
  <groupId>seckill</groupId>
  <artifactId>test-kafka</artifactId>
  <version>1</version>
  <dependencies>
    <dependency>
      <groupId>org.apache.kafka</groupId>
      <artifactId>kafka_2.13</artifactId>
      <version>` + KafkaVersion + `</version>
    </dependency>
    <dependency>
      <groupId>org.slf4j</groupId>
      <artifactId>slf4j-simple</artifactId>
      <version>1.7.36</version>
    </dependency>
  </dependencies>
</project>
`

// kafkaPlugin is the Maven goal that copies the jars.
const kafkaPlugin = "org.apache.maven.plugins:maven-dependency-plugin:3.11.0:copy-dependencies"

// kafkaDownloadLimit bounds the download of about 45 MB.
const kafkaDownloadLimit = 10 * time.Minute

// KafkaLibs returns the folder that holds the broker's jars. The first call on a machine gets them through Maven into
// the user's cache folder; test processes that call at the same time wait for the one that is at it. When they cannot be had, the error wraps
// ErrNotInstalled.
func KafkaLibs(ctx context.Context) (string, error) {
	ctx, cancel := context.WithTimeout(ctx, kafkaDownloadLimit)
	defer cancel()
	base, err := cacheDir()
	if err != nil {
		return "", err
	}
	libs := filepath.Join(base, "kafka-"+KafkaVersion)
	if isDir(libs) {
		return libs, nil
	}
	unlock, err := lockFile(ctx, filepath.Join(base, "kafka.lock"))
	if err != nil {
		return "", fmt.Errorf("wait for the kafka download: %w", err)
	}
	defer unlock()
	if isDir(libs) {
		return libs, nil
	}
	if err := downloadKafka(ctx, base, libs); err != nil {
		return "", fmt.Errorf("get kafka %s through Maven: %w: %w", KafkaVersion, ErrNotInstalled, err)
	}
	return libs, nil
}

// downloadKafka fills a temporary folder and renames it, so that libs is whole or absent.
func downloadKafka(ctx context.Context, base, libs string) error {
	mvn, err := exec.LookPath("mvn")
	if err != nil {
		return err
	}
	work, err := os.MkdirTemp(base, "download-")
	if err != nil {
		return err
	}
	defer os.RemoveAll(work)
	pom := filepath.Join(work, "pom.xml")
	if err := os.WriteFile(pom, []byte(kafkaPOM), 0o600); err != nil {
		return err
	}
	jars := filepath.Join(work, "jars")
	cmd := exec.CommandContext(ctx, mvn, "-q", "-B", "-f", pom, kafkaPlugin,
		"-DincludeScope=runtime", "-DoutputDirectory="+jars)
	if out, err := cmd.CombinedOutput(); err != nil {
		return fmt.Errorf("%w: %s", err, out)
	}
	if found, _ := filepath.Glob(filepath.Join(jars, "kafka_2.13-*.jar")); len(found) == 0 {
		return errors.New("the broker's jar is missing after the download")
	}
	return os.Rename(jars, libs)
}

// cacheDir is where downloads are kept between runs.
func cacheDir() (string, error) {
	base, err := os.UserCacheDir()
	if err != nil { // no HOME, as in some CI runners
		base = os.TempDir()
	}
	dir := filepath.Join(base, "seckill-test")
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return "", fmt.Errorf("make cache folder: %w", err)
	}
	return dir, nil
}

func isDir(path string) bool {
	info, err := os.Stat(path)
	return err == nil && info.IsDir()
}

// lockFile takes an exclusive lock between processes and returns how to give it back.
func lockFile(ctx context.Context, path string) (unlock func(), err error) {
	f, err := os.OpenFile(path, os.O_CREATE|os.O_RDWR, 0o600)
	if err != nil {
		return nil, err
	}
	tick := time.NewTicker(200 * time.Millisecond)
	defer tick.Stop()
	for syscall.Flock(int(f.Fd()), syscall.LOCK_EX|syscall.LOCK_NB) != nil {
		select {
		case <-ctx.Done():
			return nil, errors.Join(ctx.Err(), f.Close())
		case <-tick.C:
		}
	}
	return func() { _ = f.Close() }, nil
}
