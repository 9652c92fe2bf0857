package reconcile

import "strings"

// IsRegistry reports whether the target is itself a registry of stores: rows that are
// dropped of it are stores that nobody finds any more.
func (t Target) IsRegistry() bool { return strings.HasPrefix(t.Name, "system:_registry.") }

// Reasons that registries give to targets and problems.
const (
	// ReasonNoRegistry: registries were to be read and the root holds none.
	ReasonNoRegistry = "no_registry"
	// ReasonBadRegistry: what is there is no registry that can be read whole.
	ReasonBadRegistry = "bad_registry"
	// ReasonInvalidNames: rows that cannot be looked at, because no store can have
	// their names.
	ReasonInvalidNames = "invalid_names"
	// ReasonRegistryUnread: whether a row names the target could not be found out, and
	// something hangs on it: nothing is there of it, or it is damaged.
	ReasonRegistryUnread = "registry_unread"
)
