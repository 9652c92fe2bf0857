package fleet

import "strings"

// The kinds of targets.
const (
	KindRollout = "rollout"
	KindGeneric = "generic"
	KindDatagen = "datagen"
	KindSystem  = "system"
	KindTable   = "table"
)

// Name gives the target name and kind of the dataset whose folder is rel below
// the store root ("x.rollout.lance", "team/t.lance"). Only the last suffix is
// stripped: "a.rollout.rollout.lance" is the rollout "a.rollout". A folder without
// the .lance suffix keeps its whole name, with a slash at the end so that it
// cannot be taken for the dataset of that name.
func Name(rel string) (name, kind string) {
	rel = strings.TrimRight(rel, "/")
	base, ok := strings.CutSuffix(rel, ".lance")
	if !ok {
		return "table:" + rel + "/", KindTable
	}
	if strings.Contains(base, "/") {
		return "table:" + base, KindTable
	}
	if strings.HasPrefix(base, "_registry.") || strings.HasPrefix(base, "_stats.") {
		return "system:" + base, KindSystem
	}
	for _, k := range []struct{ suffix, prefix, kind string }{
		{".rollout", "", KindRollout}, {".generic", "generic:", KindGeneric}, {".datagen", "datagen:", KindDatagen},
	} {
		if n, ok := strings.CutSuffix(base, k.suffix); ok && n != "" {
			return k.prefix + n, k.kind
		}
	}
	return "table:" + base, KindTable
}
