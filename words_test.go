package policy

import (
	"go/ast"
	"go/token"
	"os"
	"regexp"
	"strconv"
	"strings"
	"testing"

	"github.com/rocketkeep/reconcile/reconcile"
)

// Every word that stands in reports is explained, and what is explained there is.
func TestEveryWordOfReportsIsInTheDocument(t *testing.T) {
	t.Parallel()
	page, err := os.ReadFile("docs/words.md")
	if err != nil {
		t.Fatal(err)
	}
	explained := map[string]bool{}
	row := regexp.MustCompile("(?m)^\\| (`[^|\n]*`) \\| ([^|\n]{5,}) \\|$")
	word := regexp.MustCompile("`([^`]+)`")
	for _, m := range row.FindAllStringSubmatch(string(page), -1) {
		for _, w := range word.FindAllStringSubmatch(m[1], -1) {
			bare, _, _ := strings.Cut(w[1], ":") // what follows is a name
			explained[bare] = true
		}
	}
	name := regexp.MustCompile(`^([rR]eason|Blocked|Refused|Registry)[A-Z]`)
	used, literals := map[string]bool{}, map[string]bool{}
	for _, s := range sources(t) {
		if s.isTestCode() || !below(s.pkg, "reconcile", "cmd", "report") {
			continue
		}
		ast.Inspect(s.file, func(n ast.Node) bool {
			switch n := n.(type) {
			case *ast.BasicLit:
				if text, err := strconv.Unquote(n.Value); err == nil && n.Kind == token.STRING {
					literals[strings.TrimSuffix(text, ":")] = true
				}
			case *ast.ValueSpec:
				for i, id := range n.Names {
					if id.Obj == nil || id.Obj.Kind != ast.Con || !name.MatchString(id.Name) || i >= len(n.Values) {
						continue
					}
					lit, ok := n.Values[i].(*ast.BasicLit)
					if !ok || lit.Kind != token.STRING {
						continue
					}
					text, err := strconv.Unquote(lit.Value)
					if err != nil {
						t.Fatal(err)
					}
					text = strings.TrimSuffix(text, ":")
					if used[text] = true; !explained[text] {
						t.Errorf("docs/words.md explains no %q (%s, %s)", text, id.Name, s.fset.Position(id.Pos()))
					}
				}
			}
			return true
		})
	}
	for state := reconcile.State(0); state <= reconcile.StateFailed; state++ {
		if !explained[state.String()] {
			t.Errorf("docs/words.md explains no state %q", state)
		}
	}
	if len(used) < 80 {
		t.Errorf("only %d words seen: the test looks at nothing", len(used))
	}
	for w := range explained {
		if !literals[w] {
			t.Errorf("docs/words.md explains %q, which no code says", w)
		}
	}
}
