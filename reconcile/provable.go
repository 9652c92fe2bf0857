package reconcile

// ProofTeller is a source that knows of which references nothing that is recorded can
// ever prove a copy. An older version alone never brings such an object back; two peers
// that hold the same bytes do, where it is absent.
type ProofTeller interface {
	// Provable reports whether what is recorded may prove a copy. It asks nobody.
	Provable(ref Reference) bool
}

// PeersMayAgree reports whether peers may bring back an object of which nothing recorded
// proves a copy: two of them must hold the same bytes, which never replace any.
func (f *Finding) PeersMayAgree() bool {
	switch f.Verdict {
	case Missing, Recoverable, Lost:
		return len(f.PeersHaving) > 1
	}
	return false
}
