package config

import (
	"errors"
	"fmt"
	"net/url"
	"strings"

	"github.com/rocketkeep/reconcile/internal/hook"
)

// Hook is one HTTP POST after each repair. Post and Body are text/templates over
// [hook.Data]; an empty Body is all of it as JSON.
type Hook struct {
	Post    Secret            `yaml:"post"`
	Body    string            `yaml:"body"`
	Headers map[string]Secret `yaml:"headers"`
}

// Compile makes it ready to be filled in. The error joins a *hook.Mistake for each
// thing that is wrong; a configuration that was read has none.
func (h Hook) Compile() (*hook.Hook, error) {
	headers := make(map[string]string, len(h.Headers))
	for name, v := range h.Headers {
		headers[name] = v.Reveal()
	}
	out, wrong := hook.New(h.Post.Reveal(), h.Body, headers)
	errs := make([]error, len(wrong))
	for i, m := range wrong {
		errs[i] = m
	}
	return out, errors.Join(errs...)
}

// MergeWAL says which workers merge pending MemWAL generations.
type MergeWAL struct {
	// Endpoints are asked one after another.
	Endpoints []string `yaml:"endpoints"`
	// MinGenerations pending on a target make it due.
	MinGenerations int64 `yaml:"min_generations"`
	// SoleScheduler states that nothing else schedules merges.
	SoleScheduler bool `yaml:"sole_scheduler"`
	// Timeout is how long one worker may take for one target.
	Timeout Duration `yaml:"timeout"`
}

func (v *validator) afterRepair(hooks []Hook) {
	keys := map[string]string{}
	for i, h := range hooks {
		at := fmt.Sprintf("after_repair[%d]", i)
		if h.Post.Reveal() == "" {
			v.fail(at+".post", "required")
			continue
		}
		c, err := h.Compile()
		if err == nil {
			if first, dup := keys[c.Key()]; dup {
				v.fail(at, "the same address and body as %s", first)
			}
			keys[c.Key()] = at
			continue
		}
		for _, e := range err.(interface{ Unwrap() []error }).Unwrap() {
			var m *hook.Mistake
			if errors.As(e, &m) {
				v.fail(at+"."+m.Part, "%s", m.Err)
			}
		}
	}
}

func (v *validator) mergeWAL(c MergeWAL) {
	seen := map[string]int{}
	for i, e := range c.Endpoints {
		at := fmt.Sprintf("merge_wal.endpoints[%d]", i)
		v.httpURL(at, e)
		if u, err := url.Parse(e); err == nil && (u.RawQuery != "" || u.ForceQuery || u.Fragment != "") {
			v.fail(at, "holds more than a host and a path; the rest of the address follows from the target")
		}
		key := strings.TrimRight(e, "/")
		if first, dup := seen[key]; dup {
			v.fail(at, "the same worker as endpoints[%d]", first)
		} else {
			seen[key] = i
		}
	}
	if len(c.Endpoints) > 0 && !c.SoleScheduler {
		v.fail("merge_wal.sole_scheduler", "must be true when endpoints are given: two schedulers that merge the same table lose work")
	}
	v.atLeast("merge_wal.min_generations", c.MinGenerations, 1)
	if c.Timeout == 0 || c.Timeout == Forever {
		v.fail("merge_wal.timeout", "must be above 0s and end")
	}
}
