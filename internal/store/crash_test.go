package store

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"strconv"
	"strings"
	"testing"
	"time"
)

// writerHome makes the test binary a writer that goes on until it is killed.
const writerHome = "NANOCLAW_TEST_STORE_WRITER"

// writeForEver accepts messages and takes rows over; it names each step on stdout once it is durable.
func writeForEver(home string) int {
	lock, err := AcquireLock(home, "test")
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	defer func() { _ = lock.Release() }()
	ctx := context.Background()
	s, err := Open(ctx, home)
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	f := &first{Store: s, home: home}
	group, err := s.Bootstrap(ctx, firstRun())
	if err == nil {
		f.group = group
		f.session, err = s.ResolveSession(ctx, "key", group, "", "")
	}
	rows, _ := s.Ledgers(ctx, f.session.ID, 1)
	start := 1
	if len(rows) == 1 {
		start = int(rows[0].Seq) + 1
	}
	for i := start; err == nil; i++ {
		if _, err = s.Accept(ctx, []Message{f.message(strconv.Itoa(i), true)}); err != nil {
			break
		}
		fmt.Println("accepted", i)
		if _, err = s.Ingest(ctx, Ingest{Session: f.session.ID, OutboundSeq: int64(i), Rows: []Ledger{f.row(i)}}); err != nil {
			break
		}
		fmt.Println("taken", i)
	}
	fmt.Fprintln(os.Stderr, err)
	return 1
}

func TestKilledWriterLosesNothing(t *testing.T) {
	t.Parallel()
	home := t.TempDir()
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	for round := range 5 {
		cmd := exec.Command(self)
		cmd.Env = append(os.Environ(), writerHome+"="+home)
		cmd.Stderr = os.Stderr
		out, err := cmd.StdoutPipe()
		if err != nil {
			t.Fatal(err)
		}
		if err := cmd.Start(); err != nil {
			t.Fatal(err)
		}
		in := bufio.NewScanner(out)
		said := map[string]int{}
		for n := 0; in.Scan(); n++ {
			word, number, _ := strings.Cut(in.Text(), " ")
			if said[word], err = strconv.Atoi(number); err != nil {
				t.Fatalf("%q", in.Text())
			}
			if n == 40+17*round {
				if _, held := LockOwner(home); !held {
					t.Error("the writer has no lock")
				}
				_ = cmd.Process.Kill() // what it still says before it is dead counts
			}
		}
		_ = cmd.Wait()
		if owner, held := LockOwner(home); held {
			t.Errorf("a dead process holds the lock: %+v", owner)
		}
		check(t, home, said)
	}
}

func check(t *testing.T, home string, said map[string]int) {
	t.Helper()
	s, err := Open(t.Context(), home)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = s.Close() }()
	var word string
	if err := s.w.QueryRowContext(t.Context(), "PRAGMA integrity_check").Scan(&word); err != nil || word != "ok" {
		t.Errorf("integrity: %s %v", word, err)
	}
	if err := s.Check(t.Context()); err != nil {
		t.Error(err)
	}
	sessions, err := s.Sessions(t.Context(), "", 10)
	if err != nil || len(sessions) != 1 {
		t.Fatalf("%+v %v", sessions, err)
	}
	messages, err := s.PendingMessages(t.Context(), sessions[0].ID)
	if err != nil {
		t.Fatal(err)
	}
	rows, err := s.Ledgers(t.Context(), sessions[0].ID, 1<<20)
	if err != nil {
		t.Fatal(err)
	}
	if len(messages) < said["accepted"] || len(messages) > said["accepted"]+1 {
		t.Errorf("%d messages accepted, %d there", said["accepted"], len(messages))
	}
	if len(rows) < said["taken"] || len(rows) > said["taken"]+1 || sessions[0].OutboundSeq != int64(len(rows)) {
		t.Errorf("%d rows taken over, %d there, cursor %d", said["taken"], len(rows), sessions[0].OutboundSeq)
	}
	if due, _, err := s.Due(t.Context(), time.Now().Add(time.Minute), 10); err != nil || len(due) != 1 {
		t.Errorf("due %v %v", due, err)
	}
}

func TestSecondLockNamesTheOwner(t *testing.T) {
	t.Parallel()
	home := t.TempDir()
	if _, held := LockOwner(home); held {
		t.Error("a home that was never used is locked")
	}
	l, err := AcquireLock(home, "1.2.3")
	if err != nil {
		t.Fatal(err)
	}
	var locked *LockedError
	if _, err := AcquireLock(home, "9"); !errors.As(err, &locked) || locked.Owner.PID != os.Getpid() || locked.Owner.Version != "1.2.3" || !strings.Contains(err.Error(), "nanoclaw stop") {
		t.Errorf("second lock: %v", err)
	}
	if o, held := LockOwner(home); !held || o.PID != os.Getpid() {
		t.Errorf("owner %+v %v", o, held)
	}
	if err := l.Release(); err != nil {
		t.Fatal(err)
	}
	if _, held := LockOwner(home); held {
		t.Error("still locked after its release")
	}
	again, err := AcquireLock(home, "1.2.4")
	if err != nil {
		t.Fatal(err)
	}
	if o, _ := LockOwner(home); o.Version != "1.2.4" {
		t.Errorf("owner %+v", o)
	}
	if err := again.Release(); err != nil {
		t.Error(err)
	}
}
