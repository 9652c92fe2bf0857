// Package lancetest makes Lance tables for tests, in two ways:
//
//   - fixtures: tiny tables that releases of the real library wrote, with what is
//     true of each ([Fixtures], [CopyFixture]);
//   - a builder that encodes manifests and minimal valid files of every kind in
//     memory ([New]), and large generated tables ([Large]).
//
// It knows the format on its own and shares no code with package lance, so that a
// misreading on either side shows as a difference. Only tests may import it.
package lancetest
