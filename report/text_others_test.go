package report

import (
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/rocketkeep/reconcile/reconcile"
)

func TestTheTextSaysWhatCameOfPostsAndMerges(t *testing.T) {
	t.Parallel()
	p := fullPass(t)
	p.Posts = append(p.Posts, reconcile.PostOutcome{Target: "exp-2", Store: "rocketkeep", State: "delivered", Attempts: 1, Status: reconcile.Ptr(int64(202))})
	_, text, _ := strings.Cut(textOf(t, p, TextOptions{Width: 200}), "For others\n")
	text, _, _ = strings.Cut(text, "\n\n")
	want := `  1 of 2 posts after repairs delivered
  1 of 2 requests to merge answered well, 8 generations reclaimed
  exp-1: post to http://master:8090/api/v1/tasks open: answered 503
  exp-1: merge by http://worker-1:3000: no answer within 10m`
	if d := cmp.Diff(want, text); d != "" {
		t.Error(d)
	}
	p.Posts, p.Merges = nil, nil
	if strings.Contains(textOf(t, p, TextOptions{}), "For others") {
		t.Error("there is nothing to say")
	}
}
