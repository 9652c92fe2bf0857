// Package config reads the YAML file that a pass is configured by.
//
// A file is read whole before anything is said about it: every mistake is
// reported at once, with its line and the path of its key. Unknown keys are
// mistakes. ${NAME} in a value is replaced by the environment variable NAME,
// which must be set; $$ is one dollar sign. Expansion happens after the YAML is
// parsed, so that a variable can never add keys.
package config

import "github.com/rocketkeep/reconcile/reconcile"

// Config is one configuration file. Absent keys hold the values of [Default].
type Config struct {
	// Database is where passes and findings are remembered: postgres://… or
	// sqlite:FILE. Empty means that none is named.
	Database    Secret    `yaml:"database"`
	Reports     Reports   `yaml:"reports"`
	Stores      []Store   `yaml:"stores"`
	Blobs       []Blobs   `yaml:"blobs"`
	Verify      Verify    `yaml:"verify"`
	Budget      Budget    `yaml:"budget"`
	Repair      Repair    `yaml:"repair"`
	Cooldown    Cooldown  `yaml:"cooldown"`
	AfterRepair []Hook    `yaml:"after_repair"`
	MergeWAL    MergeWAL  `yaml:"merge_wal"`
	WAL         WAL       `yaml:"wal"`
	Work        Work      `yaml:"work"`
	Metrics     Metrics   `yaml:"metrics"`
	Retention   Retention `yaml:"retention"`
}

// Reports says where the Parquet reports of a pass go. An empty URI means
// nowhere.
type Reports struct {
	URI        string `yaml:"uri"`
	References bool   `yaml:"references"`
	HTML       bool   `yaml:"html"`
}

// Store is one root that holds datasets.
type Store struct {
	Name string `yaml:"name"`
	URI  string `yaml:"uri"`
	// Discover is registry, list or both.
	Discover string             `yaml:"discover"`
	Versions reconcile.Versions `yaml:"versions"`
	// Versioning is auto or none: none says that the bucket keeps no object versions.
	Versioning string `yaml:"versioning"`
	// Commit is conditional or external; an external commit store means check only.
	Commit  string  `yaml:"commit"`
	S3      S3      `yaml:"s3"`
	WriteS3 WriteS3 `yaml:"write_s3"`
	Peers   []Peer  `yaml:"peers"`
}

// S3 is what differs from the standard AWS environment for one place. Empty
// fields follow the environment.
type S3 struct {
	Endpoint string `yaml:"endpoint"`
	Region   string `yaml:"region"`
	Profile  string `yaml:"profile"`
	RoleARN  string `yaml:"role_arn"`
	// PathStyle is auto, true or false; auto means path style on custom endpoints.
	PathStyle string `yaml:"path_style"`
}

// WriteS3 is the identity that repairs write with.
type WriteS3 struct {
	RoleARN string `yaml:"role_arn"`
}

// Blobs is one collection of blobs and where the references to them are found.
type Blobs struct {
	Name string `yaml:"name"`
	URI  string `yaml:"uri"`
	// Format is what the objects below URI are: empty, the blobs' bytes and nothing else,
	// or FormatHarper.
	Format     string         `yaml:"format"`
	Allow      []string       `yaml:"allow"`
	S3         S3             `yaml:"s3"`
	WriteS3    WriteS3        `yaml:"write_s3"`
	References BlobReferences `yaml:"references"`
	Peers      []Peer         `yaml:"peers"`
}

// FormatHarper: the objects are files as a Harper node keeps them on disk, a header of
// eight bytes before the blob's bytes, plain or compressed.
const FormatHarper = "harper"

// BlobReferences holds exactly one source of references.
type BlobReferences struct {
	Lance    *LanceReferences    `yaml:"lance"`
	Postgres *PostgresReferences `yaml:"postgres"`
	Parquet  *FileReferences     `yaml:"parquet"`
	JSONL    *FileReferences     `yaml:"jsonl"`
	CSV      *FileReferences     `yaml:"csv"`
	Harper   *HarperReferences   `yaml:"harper"`
}

// FileReferences names a file of references and its columns. Only Key is required.
type FileReferences struct {
	URI      string `yaml:"uri"`
	Key      string `yaml:"key"`
	Size     string `yaml:"size"`
	Checksum string `yaml:"checksum"`
	Record   string `yaml:"record"`
}

// LanceReferences names a Lance dataset of references and its columns.
type LanceReferences struct {
	URI      string `yaml:"uri"`
	Key      string `yaml:"key"`
	Size     string `yaml:"size"`
	Checksum string `yaml:"checksum"`
	Record   string `yaml:"record"`
	Filter   string `yaml:"filter"`
}

// PostgresReferences names a query that yields references.
type PostgresReferences struct {
	URL   Secret `yaml:"url"`
	Query string `yaml:"query"`
}

// Peer is where lost table files or blobs are looked for: another root of the same
// layout (URI, S3), or an HTTP address with {key} in it, the object's name below the
// store's root (URL, Headers). A plain string is short for {uri: …}.
type Peer struct {
	URI     string            `yaml:"uri"`
	S3      S3                `yaml:"s3"`
	URL     string            `yaml:"url"`
	Headers map[string]Secret `yaml:"headers"`
}

// Verify says how closely and how fast is looked.
type Verify struct {
	Depth reconcile.Depth `yaml:"depth"`
	// Probe is how blobs are asked for: head or get.
	Probe       string `yaml:"probe"`
	Concurrency int64  `yaml:"concurrency"`
	// MaxRequestsPerSecond and MaxBytesPerSecond bound one process; 0 = no bound.
	MaxRequestsPerSecond float64 `yaml:"max_requests_per_second"`
	MaxBytesPerSecond    Bytes   `yaml:"max_bytes_per_second"`
	// Sample is the share of blobs that is looked at, above 0 and at most 1.
	Sample         float64  `yaml:"sample"`
	ConfirmAfter   Duration `yaml:"confirm_after"`
	MinManifestAge Duration `yaml:"min_manifest_age"`
	PendingMaxAge  Duration `yaml:"pending_max_age"`
	TargetTimeout  Duration `yaml:"target_timeout"`
}

// Budget bounds one pass; 0 = no bound.
type Budget struct {
	Duration       Duration `yaml:"duration"`
	Requests       int64    `yaml:"requests"`
	RefetchBytes   Bytes    `yaml:"refetch_bytes"`
	RefetchObjects int64    `yaml:"refetch_objects"`
	// FullCycle is how long a budgeted check may take until everything was seen.
	FullCycle Duration `yaml:"full_cycle"`
}

// Repair says what may be repaired, and how much of it.
type Repair struct {
	// Mode is off, restore or full.
	Mode             string   `yaml:"mode"`
	DropAfter        Duration `yaml:"drop_after"`
	MaxFragments     int64    `yaml:"max_fragments"`
	MaxRows          int64    `yaml:"max_rows"`
	MaxFraction      float64  `yaml:"max_fraction"`
	MaxPassTargets   int64    `yaml:"max_pass_targets"`
	MaxPassFragments int64    `yaml:"max_pass_fragments"`
	MaxPassRows      int64    `yaml:"max_pass_rows"`
	// DeletionFiles is report or drop_fragment.
	DeletionFiles string `yaml:"deletion_files"`
	// PartialFragments is report or drop.
	PartialFragments string   `yaml:"partial_fragments"`
	Quarantine       string   `yaml:"quarantine"`
	Quiet            Duration `yaml:"quiet"`
}

// Policy is what the repair section allows, as planning asks for it.
func (r Repair) Policy() reconcile.Policy {
	return reconcile.Policy{
		Limits: reconcile.Limits{
			MaxFragments: r.MaxFragments, MaxRows: r.MaxRows, MaxFraction: r.MaxFraction,
			MaxPassTargets: r.MaxPassTargets, MaxPassFragments: r.MaxPassFragments, MaxPassRows: r.MaxPassRows,
		},
		DropForLostDeletionFile: r.DeletionFiles == "drop_fragment",
		DropPartialFragments:    r.PartialFragments == "drop",
	}
}

// Cooldown says when a target that keeps failing is left alone.
type Cooldown struct {
	After int64    `yaml:"after"`
	Base  Duration `yaml:"base"`
	Max   Duration `yaml:"max"`
}

// WAL says from how many pending generations on a table is warned about.
type WAL struct {
	WarnGenerations int64 `yaml:"warn_generations"`
}

// Work is the local disk that a pass may use. An empty Dir is $XDG_CACHE_HOME/reconcile,
// else ~/.cache/reconcile. A quarter of Max is for manifests that later passes need not
// read again; 0 keeps none.
type Work struct {
	Dir string `yaml:"dir"`
	Max Bytes  `yaml:"max"`
}

// Metrics says where figures go; empty fields mean nowhere.
type Metrics struct {
	Listen      string `yaml:"listen"`
	Pushgateway Secret `yaml:"pushgateway"`
	Textfile    string `yaml:"textfile"`
}

// Retention says how long the ledger remembers.
type Retention struct {
	Passes  Duration `yaml:"passes"`
	Repairs Duration `yaml:"repairs"`
}
