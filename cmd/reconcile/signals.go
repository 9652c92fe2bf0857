package main

import (
	"context"
	"fmt"
	"os"
	"os/signal"
	"syscall"
	"time"

	"github.com/rocketkeep/reconcile/reconcile"
)

// interruptError is the cause of a context that a signal ended.
type interruptError struct{ signal os.Signal }

func (e *interruptError) Error() string { return fmt.Sprintf("interrupted (%v)", e.signal) }

func (e *interruptError) exit() reconcile.ExitCode {
	if e.signal == syscall.SIGTERM {
		return reconcile.ExitTerminated
	}
	return reconcile.ExitInterrupted
}

// sameSignal is for how long more signals mean the first one: timeout(1), a shell and a
// supervisor that ends a process and then its group send two within a millisecond, and
// nobody who waited for an end and lost patience is that quick.
const sameSignal = time.Second

// withSignals ends the context with an *interruptError on the first SIGINT or
// SIGTERM, so that what was found is still printed, and calls exit on the next of
// either that comes sameSignal later. stop gives the signals back.
func withSignals(parent context.Context, exit func(int)) (ctx context.Context, stop func()) {
	ctx, cancel := context.WithCancelCause(parent)
	signals := make(chan os.Signal, 2)
	signal.Notify(signals, syscall.SIGINT, syscall.SIGTERM)
	done := make(chan struct{})
	go func() {
		defer close(done)
		first, ok := <-signals
		if !ok {
			return
		}
		err := &interruptError{first}
		at := time.Now()
		cancel(err)
		for range signals {
			if time.Since(at) >= sameSignal {
				exit(int(err.exit()))
				return
			}
		}
	}()
	return ctx, func() {
		signal.Stop(signals)
		close(signals)
		<-done
		cancel(nil)
	}
}
