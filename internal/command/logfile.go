package command

import (
	"context"
	"fmt"
	"io"
	"log/slog"
	"os"
	"os/signal"
	"path/filepath"
	"syscall"

	"golang.org/x/sys/unix"

	"nanoclaw/internal/config"
	"nanoclaw/internal/obs"
)

// openLog is where a host writes its log: the file of the settings; the background host's own file, which its standard error
// is; else standard error. Only a file is bounded; the settings say how.
func (a *app) openLog(s config.Settings) (io.Writer, *obs.File, error) {
	path, opt := s.LogFile, obs.FileOptions{MaxBytes: s.LogMaxBytes, MaxAge: s.LogMaxAge}
	if path == "" {
		stderr, ok := a.err.(*os.File)
		path = filepath.Join(s.Home, "logs", LogName)
		if !ok || !sameFile(stderr, path) {
			return a.err, nil, nil
		}
		streams := []*os.File{stderr}
		if stdout, ok := a.out.(*os.File); ok && sameFile(stdout, path) {
			streams = append(streams, stdout)
		}
		opt.Follow = func(f *os.File) error {
			for _, s := range streams {
				if err := unix.Dup2(int(f.Fd()), int(s.Fd())); err != nil {
					return err
				}
			}
			return nil
		}
	} else if !filepath.IsAbs(path) {
		path = filepath.Join(s.Home, path)
	}
	f, err := obs.OpenFile(path, opt)
	if err != nil {
		return nil, nil, err
	}
	return f, f, nil
}

func sameFile(f *os.File, path string) bool {
	one, err := f.Stat()
	if err != nil {
		return false
	}
	other, err := os.Stat(path)
	return err == nil && os.SameFile(one, other)
}

// obeyHangup makes SIGHUP read log.level again and begin the log file anew, until the returned function is called. On a
// terminal the signal keeps its usual meaning.
func (a *app) obeyHangup(ctx context.Context, log *slog.Logger, file *obs.File) (stop func()) {
	if a.Terminal(a.err) {
		return func() {}
	}
	hangup := make(chan os.Signal, 1)
	signal.Notify(hangup, syscall.SIGHUP)
	ctx, cancel := context.WithCancel(ctx)
	done := make(chan struct{})
	go func() {
		defer close(done)
		for {
			select {
			case <-ctx.Done():
				return
			case <-hangup:
				a.reload(log, file)
			}
		}
	}()
	return func() {
		signal.Stop(hangup)
		cancel()
		<-done
	}
}

func (a *app) reload(log *slog.Logger, file *obs.File) {
	if file != nil {
		if err := file.Reopen(); err != nil {
			log.Error("the log file cannot be opened again", obs.Error(err))
		}
	}
	s, err := a.settings()
	if err != nil {
		log.Error("the settings cannot be read again; the log level stays", obs.Error(err))
		return
	}
	level, err := obs.ParseLevel(s.LogLevel)
	if err != nil {
		log.Error("the log level stays", obs.Error(err))
		return
	}
	obs.SetLevel(log, level)
	log.Info("settings of the log read again", obs.KeyLevel, obs.LevelName(level))
}

// logger is the log of a host with these settings.
func (a *app) logger(s config.Settings) (*slog.Logger, *obs.File, error) {
	level, err := obs.ParseLevel(s.LogLevel)
	if err != nil {
		return nil, nil, usage(err)
	}
	w, file, err := a.openLog(s)
	if err != nil {
		return nil, nil, fmt.Errorf("start the host: %w", err)
	}
	return obs.Logger(w, level, s.LogFormat == "json"), file, nil
}
