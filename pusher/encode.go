package pusher

import (
	"encoding/json"
	"strconv"
	"time"

	"github.com/gorilla/websocket"
)

// encode puts a message of the hub behind what waits to be written, in the form of the socket's transport.
func (s *socket) encode(data []byte) error {
	if s.ws == nil {
		s.wire.out = appendEvent(s.wire.out, data)
		return nil
	}
	return s.ws.WriteMessage(websocket.TextMessage, data) //nolint:wrapcheck // write does
}

// ping asks the peer for a sign of life. An event stream's peer cannot give one; what is sent to it keeps proxies from
// closing the stream and shows when the connection is gone.
func (s *socket) ping() {
	if s.ws == nil {
		s.wire.out = append(s.wire.out, ":\n\n"...)
		return
	}
	if err := s.ws.WriteControl(websocket.PingMessage, nil, time.Now().Add(s.p.cfg.WriteTimeout)); err != nil {
		s.client.Close(err)
	}
}

// appendEvent writes a frame as an event of a text/event-stream: the event's name is the type of the frame, and a
// result's id is <requestToken>:<version>. A frame is one line, as all JSON here.
func appendEvent(out, frame []byte) []byte {
	var head struct {
		Type         string `json:"type"`
		RequestToken string `json:"requestToken"`
		Version      int64  `json:"version"`
	}
	if err := json.Unmarshal(frame, &head); err != nil {
		panic("BUG: a frame is no JSON: " + err.Error())
	}
	out = append(append(out, "event: "...), head.Type...)
	if head.RequestToken != "" {
		out = append(append(out, "\nid: "...), head.RequestToken...)
		out = strconv.AppendInt(append(out, ':'), head.Version, 10)
	}
	return append(append(append(out, "\ndata: "...), frame...), "\n\n"...)
}

// closeEvent tells the reader of an event stream why it ends: {"type":"close","code":4401,"reason":"…"}, with the
// codes that a socket is closed with.
func closeEvent(reason error) []byte {
	code, text := closeCode(reason)
	if code == 0 {
		return nil
	}
	return appendEvent(nil, mustJSON(struct {
		Type   string `json:"type"`
		Code   int    `json:"code"`
		Reason string `json:"reason"`
	}{"close", code, text}))
}
