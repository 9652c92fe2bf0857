package main

import (
	"fmt"
	"slices"
	"strings"

	"github.com/spf13/pflag"

	"github.com/rocketkeep/reconcile/internal/config"
)

// choice is a flag that takes one of a few words.
type choice struct {
	value *string
	words []string
}

func newChoice(value *string, initial string, words ...string) *choice {
	*value = initial
	return &choice{value, words}
}

// Set implements pflag.Value.
func (c *choice) Set(s string) error {
	if !slices.Contains(c.words, s) {
		return fmt.Errorf("it is one of %s", strings.Join(c.words, ", "))
	}
	*c.value = s
	return nil
}

// String implements pflag.Value.
func (c *choice) String() string { return *c.value }

// Type implements pflag.Value.
func (c *choice) Type() string { return strings.Join(c.words, "|") }

// outputFlag adds --output; data on stdout is text for people or JSON.
func outputFlag(fs *pflag.FlagSet, output *string) {
	fs.Var(newChoice(output, "text", "text", "json"), "output", "form of the result on stdout: text or json")
}

// lookFlags are the flags of every command that looks. Those that the user left
// out follow the configuration.
type lookFlags struct {
	config                       string
	output                       string
	report                       string
	targets, exclude             []string
	versions, depth              string
	confirmAfter, minManifestAge config.Duration
	requestTimeout               config.Duration
	concurrency                  int64
	database                     config.Secret
	progress                     string
	verbose                      bool
	sdkHead                      bool
}

func (f *lookFlags) add(fs *pflag.FlagSet) {
	d := config.Default()
	f.confirmAfter, f.minManifestAge, f.requestTimeout = d.Verify.ConfirmAfter, d.Verify.MinManifestAge, defaultRequestTimeout
	fs.StringVar(&f.config, "config", "", "configuration `FILE`; else $"+config.EnvFile+", else ./"+config.DefaultFile+" if there is one")
	outputFlag(fs, &f.output)
	fs.StringVar(&f.report, "report", "", "write the Parquet reports below this `URI`")
	fs.StringArrayVar(&f.targets, "target", nil, "look only at targets whose name matches this `GLOB`; may be repeated")
	fs.StringArrayVar(&f.exclude, "exclude", nil, "leave out targets whose name matches this `GLOB`; may be repeated")
	fs.Var(newChoice(&f.versions, "current", "current", "retained", "all"), "versions", "versions to look at: current; retained adds tags and branches; all")
	fs.Var(newChoice(&f.depth, d.Verify.Depth.String(), "head", "footer", "checksum"), "depth", "how closely to look: existence and size; the footer too; recorded checksums too")
	fs.Var(&f.confirmAfter, "confirm-after", "`DURATION` between the two looks that prove a loss")
	fs.Var(&f.minManifestAge, "min-manifest-age", "what no version older than this `DURATION` names is pending, not missing")
	fs.Var(&f.requestTimeout, "request-timeout", "`DURATION` after which one request is given up")
	fs.Int64Var(&f.concurrency, "concurrency", d.Verify.Concurrency, "at most `N` requests in flight, over all targets")
	fs.Var(&f.database, "database", "ledger `URL` (postgres://…, sqlite:FILE); else the configuration's, else a file of this user")
	fs.Var(newChoice(&f.progress, "auto", "auto", "always", "never"), "progress", "show progress on stderr; auto shows it on a terminal")
	fs.BoolVarP(&f.verbose, "verbose", "v", false, "list every finding and every target in the text")
	fs.BoolVar(&f.sdkHead, "sdk-head", false, "send HEADs through the AWS SDK's client")
	fs.Lookup("sdk-head").Hidden = true
}
