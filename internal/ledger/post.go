package ledger

import (
	"context"
	"time"
)

// Posts remembers what other systems are to be told of repairs, from before it is
// sent until it is delivered or hopeless.
type Posts interface {
	// OpenPosts opens a post for each hook and each repair of these targets that
	// needs one: it was applied within the last age, it was verified or found to have
	// landed by a later pass, and no post of it was ever opened. It returns how many
	// were opened. A hook that is new says nothing of repairs that were told already.
	OpenPosts(ctx context.Context, hooks []PostHook, uris []string, age time.Duration) (int64, error)
	// DuePosts first gives up every open post that is older than age (seven times that
	// when it is of one of these hooks and was never tried) or that passes passes have
	// tried, whatever its hook, and returns those; then it lists the open ones of these
	// hooks and targets without those that somebody is sending: those first that fewest
	// passes tried, of these the oldest.
	DuePosts(ctx context.Context, hooks []PostHook, uris []string, age time.Duration, passes int64) (due, givenUp []Post, err error)
	// ClaimPost says that a pass sends the post now: for length nobody else does. ok
	// is false when somebody else has it or it is open no more.
	ClaimPost(ctx context.Context, repairID, hook string, length time.Duration) (ok bool, err error)
	// SettlePost writes how the sending of a claimed post ended. ErrNotFound when it is
	// not open.
	SettlePost(ctx context.Context, repairID, hook string, r PostResult) error
}

// The states of a post.
const (
	// PostOpen is to be sent, by the next pass if need be.
	PostOpen = "open"
	// PostDelivered was answered well.
	PostDelivered = "delivered"
	// PostRefused was answered in a way that no repetition changes.
	PostRefused = "refused"
	// PostGivenUp was tried too often or for too long.
	PostGivenUp = "given_up"
)

// PostHook is a hook of the configuration.
type PostHook struct {
	// Key is 32 hex digits that tell it from others and hold no secret.
	Key string
	// URL is its address without user and query.
	URL string
}

// Post is what one hook is to be told of one repair.
type Post struct {
	// Repair is told of; without its bytes.
	Repair        Repair
	Hook, URL     string
	State         string
	Passes        int64
	Attempts      int64
	Status        *int64
	Error         *string
	CreatedAt     time.Time
	LastAttemptAt *time.Time
}

// PostResult is how one pass's attempts ended.
type PostResult struct {
	// State is PostOpen (another pass may try again), PostDelivered or PostRefused.
	State string
	// URL as it was sent, without user and query; empty keeps that of the hook.
	URL string
	// Attempts are those of this pass.
	Attempts int64
	// Status of the last answer; nil when there was none.
	Status *int64
	// Error is required unless delivered.
	Error *string
}
