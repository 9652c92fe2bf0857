package config

import (
	"errors"
	"fmt"
	"io/fs"
	"os"

	"github.com/rocketkeep/reconcile/internal/objstore"
)

// Warnings are what the local disk lacks of what the configuration names, so that a pass
// would do less than it was asked for: a folder for replaced bytes that is absent, which
// nothing makes. They are no mistakes, because the disk may be another one than that of
// the pass. It asks no store.
func (c *Config) Warnings() []Problem {
	loc, err := objstore.Parse(c.Repair.Quarantine)
	if c.Repair.Quarantine == "" || err != nil || loc.Scheme != "file" {
		return nil
	}
	const path, effect = "repair.quarantine", "nothing makes it, and without it what only it could keep is not replaced"
	switch info, err := os.Stat(loc.Key); {
	case err != nil:
		var why *fs.PathError
		if errors.As(err, &why) {
			err = why.Err
		}
		return []Problem{{Path: path, Text: fmt.Sprintf("folder %s: %s; %s", loc.Key, err, effect)}}
	case !info.IsDir():
		return []Problem{{Path: path, Text: fmt.Sprintf("%s is no folder; %s", loc.Key, effect)}}
	}
	return nil
}
