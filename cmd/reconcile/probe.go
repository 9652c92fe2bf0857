package main

import (
	"cmp"
	"context"
	"crypto/rand"
	"encoding/hex"
	"errors"
	"fmt"
	"log/slog"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/rocketkeep/reconcile/internal/ledger"
	"github.com/rocketkeep/reconcile/internal/objstore"
	"github.com/rocketkeep/reconcile/internal/objstore/factory"
	"github.com/rocketkeep/reconcile/reconcile"
	"github.com/rocketkeep/reconcile/reconcile/pass"
)

// What a self-test can say of one property of a store.
const (
	probeOK      = "ok"
	probeWarning = "warning"
	probeFailed  = "failed"
	probeUnknown = "unknown"
	probeSkipped = "skipped"
)

// probeRow is one property of a store.
type probeRow struct {
	Check   string `json:"check"`
	Verdict string `json:"verdict"`
	Detail  string `json:"detail"`
	code    reconcile.ExitCode
}

// probeDoc is what probe prints as JSON.
type probeDoc struct {
	URI    string         `json:"uri"`
	Exit   reconcile.Exit `json:"exit"`
	Checks []probeRow     `json:"checks"`
}

func (a *app) probeCommand() *cobra.Command {
	var f lookFlags
	var readOnly bool
	cmd := &cobra.Command{
		Use: "probe URI [flags]", Short: "Test whether a store answers as repairs need it to",
		Long: `probe asks a store what looks and repairs rest on: that a missing key answers 404, by
HEAD, GET and listing; that a present one answers 200; the order of listings; how far
its clock is from this one; whether versions of objects can be listed; and whether it
refuses to create an object that is there. For the last it writes the one object
.reconcile-probe below the URI, and nothing else; --read-only leaves that out.`,
		Example: "  reconcile probe s3://bucket/prefix\n  reconcile probe s3://bucket/prefix --read-only --output json",
		Args:    oneArgument("a URI"),
		RunE: func(cmd *cobra.Command, args []string) error {
			s, err := f.settings(cmd, args)
			if err != nil {
				return err
			}
			doc, err := a.probe(cmd.Context(), s, args[0], readOnly)
			if err != nil {
				return failure(err)
			}
			if f.output == "json" {
				err = a.printJSON(doc)
			} else {
				err = a.printProbe(doc)
			}
			return cmpErr(failure(err), exitWith(doc.Exit.Code))
		},
	}
	f.add(cmd.Flags())
	for _, ofLook := range []string{"report", "target", "exclude", "versions", "depth", "confirm-after", "min-manifest-age", "concurrency", "progress", "verbose"} {
		cmd.Flags().Lookup(ofLook).Hidden = true
	}
	cmd.Flags().BoolVar(&readOnly, "read-only", false, "write nothing: leave the test of conditional creation out")
	setExits(cmd, reconcile.ExitClean, reconcile.ExitFailed, reconcile.ExitUsage, reconcile.ExitIncomplete, reconcile.ExitRefused, reconcile.ExitInterrupted, reconcile.ExitTerminated)
	return cmd
}

// prober asks one store.
type prober struct {
	r    objstore.Reader
	root objstore.Location
	// there is an object that the listing showed; zero when it showed none.
	there objstore.Location
	// empty: the listing showed nothing at all; noRoot: there is no such bucket or folder.
	empty, noRoot bool
	now           func() time.Time
	rows          []probeRow
}

func (p *prober) say(check, verdict, format string, args ...any) {
	p.rows = append(p.rows, probeRow{Check: check, Verdict: verdict, Detail: fmt.Sprintf(format, args...)})
}

// fail says that a property does not hold or is not known, and which exit that means.
func (p *prober) fail(code reconcile.ExitCode, check, verdict, format string, args ...any) {
	p.say(check, verdict, format, args...)
	p.rows[len(p.rows)-1].code = code
}

func (a *app) probe(ctx context.Context, s *settings, uri string, readOnly bool) (*probeDoc, error) {
	s.stores.Logger = a.log
	set := factory.New(s.stores)
	defer set.Close()
	root, err := set.Locate(uri)
	if err != nil {
		return nil, err
	}
	root.Key = strings.TrimRight(root.Key, "/")
	r, err := set.Reader(ctx, root)
	if err != nil {
		return nil, err
	}
	p := &prober{r: r, root: root, now: time.Now}
	if p.listing(ctx); strings.HasSuffix(root.Key, ".lance") && p.there == (objstore.Location{}) && p.empty {
		return nil, errors.New(notThere(root, p.noRoot, s.command))
	}
	p.absent(ctx)
	p.present(ctx)
	p.versions(ctx)
	p.conditional(ctx, a, s, readOnly)
	if ctx.Err() != nil {
		return nil, context.Cause(ctx)
	}
	var codes []reconcile.ExitCode
	for _, row := range p.rows {
		codes = append(codes, row.code)
	}
	code := reconcile.WorstExit(codes...)
	return &probeDoc{URI: root.String(), Exit: reconcile.Exit{Code: code, Name: code.Name()}, Checks: p.rows}, nil
}

// listedAtMost bounds how far the order of a listing is followed.
const listedAtMost = 2000

func (p *prober) listing(ctx context.Context) {
	n, last, ordered := 0, "", true
	var failed error
	for at, err := range p.r.List(ctx, p.root.Dir(), "") {
		if err != nil {
			failed = err
			break
		}
		if p.there == (objstore.Location{}) && at.Location.Base() != pass.ProbeName {
			p.there = at.Location
		}
		ordered = ordered && at.Location.Key > last
		last = at.Location.Key
		if n++; n == listedAtMost {
			break
		}
	}
	p.noRoot = errors.Is(failed, objstore.ErrNoSuchBucket)
	p.empty = n == 0 && (failed == nil || p.noRoot)
	switch {
	case p.noRoot:
		p.fail(reconcile.ExitFailed, "list", probeFailed, "there is no such bucket or folder")
	case failed != nil:
		p.fail(reconcile.ExitIncomplete, "list", probeFailed, "%v", failed)
	case n == 0:
		p.fail(reconcile.ExitIncomplete, "list", probeUnknown, "nothing is below this place, so that nothing proves that it can be read")
	default:
		p.say("list", probeOK, "%d objects were listed", n)
	}
	switch {
	case n < 2:
		p.say("listing_order", probeUnknown, "fewer than two objects")
	case ordered:
		p.say("listing_order", probeOK, "by key")
	default:
		p.say("listing_order", probeWarning, "not by key; nothing here relies on it")
	}
}

// absent asks for a key that cannot exist, in the three ways that there are.
func (p *prober) absent(ctx context.Context) {
	var b [16]byte
	rand.Read(b[:]) // never fails
	key := p.root.Join(".reconcile-control-" + hex.EncodeToString(b[:]))
	_, err := p.r.Restat(ctx, key)
	p.absence("missing_key_head", err)
	_, err = p.r.Probe(ctx, key)
	p.absence("missing_key_get", err)
	n := 0
	err = nil
	for _, err = range p.r.List(ctx, key, "") {
		if err != nil {
			break
		}
		n++
	}
	switch {
	case err != nil:
		p.fail(reconcile.ExitIncomplete, "missing_key_list", probeFailed, "%v", err)
	case n > 0:
		p.fail(reconcile.ExitIncomplete, "missing_key_list", probeFailed, "a listing shows objects below a key that cannot exist")
	default:
		p.say("missing_key_list", probeOK, "an empty listing")
	}
}

func (p *prober) absence(check string, err error) {
	switch {
	case err == nil:
		p.fail(reconcile.ExitIncomplete, check, probeFailed, "the store answers for a key that cannot exist: nothing it says counts")
	case errors.Is(err, objstore.ErrNoSuchBucket):
		p.fail(reconcile.ExitFailed, check, probeFailed, "there is no such bucket or folder")
	case errors.Is(err, objstore.ErrNotExist):
		p.say(check, probeOK, "404, as it must be")
	case errors.Is(err, objstore.ErrDenied):
		p.fail(reconcile.ExitIncomplete, check, probeFailed, "403 for a key that cannot exist: without the right to list, nothing can be called missing (s3:ListBucket)")
	default:
		p.fail(reconcile.ExitIncomplete, check, probeUnknown, "%v", err)
	}
}

// skewAllowed is what a clock may be off without anybody noticing.
const skewAllowed = 30 * time.Second

// present asks for an object that was listed, and compares the clocks.
func (p *prober) present(ctx context.Context) {
	if p.there == (objstore.Location{}) {
		p.say("present_key", probeUnknown, "no object to ask for")
		p.say("clock", probeUnknown, "no answer with a time")
		return
	}
	asked := p.now()
	at, err := p.r.Restat(ctx, p.there)
	if err == nil {
		_, err = p.r.Probe(ctx, p.there)
	}
	if err != nil {
		p.fail(reconcile.ExitIncomplete, "present_key", probeFailed, "%s was listed, and: %v", p.there, err)
	} else {
		p.say("present_key", probeOK, "HEAD and GET agree")
	}
	switch skew := at.ServerTime.Sub(asked).Round(time.Second); {
	case at.ServerTime.IsZero():
		p.say("clock", probeUnknown, "the store tells no time; ages are compared with its own times only")
	case skew.Abs() > skewAllowed:
		p.say("clock", probeWarning, "the store is %s from this machine; ages are compared with the store's times only", skew)
	default:
		p.say("clock", probeOK, "within %s", skewAllowed)
	}
}

func (p *prober) versions(ctx context.Context) {
	key := p.there
	if key == (objstore.Location{}) {
		key = p.root.Join(pass.ProbeName)
	}
	var err error
	n := 0
	for _, err = range p.r.Versions(ctx, key) {
		if err != nil {
			break
		}
		n++
	}
	switch {
	case errors.Is(err, objstore.ErrUnsupported):
		p.fail(reconcile.ExitIncomplete, "versions", probeUnknown, "the store cannot tell versions: every drop is blocked (versions_unknown) unless the configuration says versioning: none")
	case errors.Is(err, objstore.ErrDenied):
		p.fail(reconcile.ExitIncomplete, "versions", probeFailed, "403: every drop is blocked (versions_unknown); ask for s3:ListBucketVersions")
	case err != nil:
		p.fail(reconcile.ExitIncomplete, "versions", probeUnknown, "%v", err)
	case n == 0:
		p.say("versions", probeOK, "can be listed; none are kept")
	default:
		p.say("versions", probeOK, "can be listed")
	}
}

// conditional tests that what is there is not created again.
func (p *prober) conditional(ctx context.Context, a *app, s *settings, readOnly bool) {
	const check = "conditional_create"
	if readOnly {
		p.say(check, probeSkipped, "--read-only")
		return
	}
	opts := s.stores
	opts.PerPrefix = s.writeAs
	set := factory.New(opts)
	defer set.Close()
	w, err := set.Writer(ctx, p.root)
	if err == nil {
		err = pass.ProbeConditional(ctx, w, p.root)
	}
	switch {
	case err == nil:
		p.say(check, probeOK, "an object that is there is not created again")
	case errors.Is(err, pass.ErrUnconditional):
		p.fail(reconcile.ExitRefused, check, probeFailed, "%v; every repair here is refused", err)
	default:
		p.fail(reconcile.ExitIncomplete, check, probeUnknown, "%v", err)
	}
	if err == nil || errors.Is(err, pass.ErrUnconditional) {
		remember(ctx, a, s, p.root, err)
	}
}

// remember notes the result for repairs; a ledger that is not there is no matter.
func remember(ctx context.Context, a *app, s *settings, root objstore.Location, result error) {
	l, err := a.openLedger(ctx, s, slog.New(slog.DiscardHandler))
	if err != nil || l == nil {
		return
	}
	p := ledger.Probe{RootURI: root.Canonical(), Name: ledger.ProbeConditionalPut, Passed: result == nil, Host: host(), ToolVersion: thisBuild().Version}
	if result != nil {
		p.Detail = result.Error()
	}
	if err := cmp.Or(l.PutProbe(ctx, p), l.Close()); err != nil {
		a.log.Debug("the result of the test is not remembered", "err", err)
	}
}

func (a *app) printProbe(d *probeDoc) error {
	rows := make([][]string, len(d.Checks))
	for i, c := range d.Checks {
		rows[i] = []string{c.Check, c.Verdict, c.Detail}
	}
	if _, err := fmt.Fprintf(a.stdout, "%s (exit %d, %s)\n\n", printable(d.URI), d.Exit.Code, d.Exit.Name); err != nil {
		return err
	}
	return columns(a.stdout, "CHECK VERDICT DETAIL", rows)
}
