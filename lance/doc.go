// Package lance reads the table format of Lance datasets (LanceDB tables) in
// pure Go: which versions exist, what the manifest of one says, every object that
// it names, and the values of the rows ([Manifest.Scan]; package datafile decodes
// them), with those objects that only values name ([Manifest.Sidecars]).
//
// It writes one thing: the next version of a dataset, from which whole fragments
// or an index entry are gone, or to which dropped fragments come back
// ([Manifest.ProposeDelete], [Proposal.Commit]). It never deletes an object.
//
// A dataset is a folder:
//
//	_versions/{v}.manifest                  one manifest a version; two naming schemes, see [Naming]
//	_transactions/{read version}-{uuid}.txn what a commit did, a bare protobuf message
//	data/{name}.lance                       data files
//	_deletions/{fragment}-{version}-{id}.*  deleted rows of one fragment
//	_indices/{uuid}/…                       one folder an index segment
//	_refs/{tags,branches}/{name}.json       only at the root of the main branch
//	tree/{branch}/                          a branch: a dataset root of its own
//
// A manifest file is, in this order:
//
//	[ values of legacy dictionary columns ]     data format 0.1 only
//	[ u32 length | IndexSection ]               at Manifest#6, when the table has indices
//	[ u32 length | Transaction  ]               at Manifest#21, Lance 8 and later
//	[ u32 length | Manifest     ]
//	[ i64 offset of the Manifest's length | u16 major | u16 minor | "LANC" ]
//
// All integers are little endian. There is no checksum. The messages are
// protobuf; this package walks their wire bytes in place, so that a manifest of a
// million fragments costs its own bytes once, and so that bytes nobody here
// understands stay reachable ([Manifest.Raw], [Fragment.Raw], [Index.Raw]).
//
// Everything that is read is untrusted: what the bytes claim about themselves is
// held against what is there before anything is allocated or followed.
//
// The package is usable on its own; storage is whatever implements [Store]:
//
//	versions, err := lance.ListVersions(ctx, store)
//	…
//	m, err := lance.ReadManifest(ctx, store, versions.Newest())
//	…
//	if err := m.CheckReaderFlags(); err != nil {
//		return err // it may name objects that Files does not tell
//	}
//	for f, err := range m.Files() {
//		…
//	}
package lance
