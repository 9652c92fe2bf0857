package main

import (
	"context"
	"fmt"
	"os"
	"os/signal"
	"syscall"

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

// withSignals ends the context with an *interruptError on the first SIGINT or
// SIGTERM, so that what was found is still printed, and calls exit on the second.
// stop gives the signals back.
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
		cancel(err)
		if _, ok := <-signals; ok {
			exit(int(err.exit()))
		}
	}()
	return ctx, func() {
		signal.Stop(signals)
		close(signals)
		<-done
		cancel(nil)
	}
}
