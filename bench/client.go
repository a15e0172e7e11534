package bench

import (
	"bufio"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"time"
)

// worker is a client process.
type worker struct {
	cmd   *exec.Cmd
	in    io.WriteCloser
	lines *bufio.Scanner
}

func startWorker(program string, job pushJob) (*worker, error) {
	w := &worker{cmd: exec.Command(program, "bench", "push-worker")} //nolint:noctx // it outlives the call
	w.cmd.Stderr = os.Stderr
	in, err1 := w.cmd.StdinPipe()
	out, err2 := w.cmd.StdoutPipe()
	if err := errors.Join(err1, err2); err != nil {
		return nil, fmt.Errorf("bench: client: %w", err)
	}
	w.in, w.lines = in, bufio.NewScanner(out)
	w.lines.Buffer(nil, 64<<20)
	if err := w.cmd.Start(); err != nil {
		return nil, fmt.Errorf("bench: client: %w", err)
	}
	if err := json.NewEncoder(in).Encode(job); err != nil {
		return nil, fmt.Errorf("bench: client: %w", err)
	}
	return w, nil
}

func (w *worker) ask(what string) (pushReport, error) {
	if _, err := io.WriteString(w.in, what+"\n"); err != nil {
		return pushReport{}, fmt.Errorf("bench: client: %w", err)
	}
	return w.read()
}

func (w *worker) read() (r pushReport, err error) {
	if !w.lines.Scan() {
		return r, fmt.Errorf("bench: client has ended: %w", errors.Join(w.lines.Err(), io.ErrUnexpectedEOF))
	}
	if err := json.Unmarshal(w.lines.Bytes(), &r); err != nil {
		return r, fmt.Errorf("bench: client: %w", err)
	}
	if r.Error != "" {
		return r, fmt.Errorf("bench: client: %s", r.Error)
	}
	return r, nil
}

func (w *worker) stop() {
	_ = w.in.Close()
	force := time.AfterFunc(10*time.Second, func() { _ = w.cmd.Process.Kill() })
	defer force.Stop()
	_ = w.cmd.Wait()
}
