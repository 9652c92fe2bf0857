package reconcile

// Reasons that registries give to targets and problems.
const (
	// ReasonNoRegistry: registries were to be read and the root holds none.
	ReasonNoRegistry = "no_registry"
	// ReasonBadRegistry: what is there is no registry that can be read whole.
	ReasonBadRegistry = "bad_registry"
	// ReasonInvalidNames: rows that cannot be looked at, because no store can have
	// their names.
	ReasonInvalidNames = "invalid_names"
	// ReasonRegistryUnread: nothing is there of a target, and whether its row still is
	// could not be found out.
	ReasonRegistryUnread = "registry_unread"
)
