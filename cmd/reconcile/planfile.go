package main

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"

	"github.com/rocketkeep/reconcile/reconcile"
)

// checkPlanFile reports whether a plan may be written to name: to a new file, over
// an empty one or an earlier plan, or into something that is no regular file.
// Anything else is somebody's work.
func checkPlanFile(name string) error {
	info, err := os.Stat(name)
	switch {
	case errors.Is(err, fs.ErrNotExist):
		if _, err := os.Stat(filepath.Dir(name)); err != nil {
			return fmt.Errorf("-o %s: %w", name, err)
		}
		return nil
	case err != nil:
		return fmt.Errorf("-o %s: %w", name, err)
	case info.IsDir():
		return fmt.Errorf("-o %s: a folder is no file", name)
	case !info.Mode().IsRegular() || info.Size() == 0:
		return nil
	}
	data, err := os.ReadFile(name)
	if err != nil {
		return fmt.Errorf("-o %s: %w", name, err)
	}
	if !reconcile.LooksLikePlan(data) {
		return fmt.Errorf("-o %s: the file is there and is no plan; it is not overwritten", name)
	}
	return nil
}

// writePlan writes the plan to stdout or to a file, whole or not at all.
func (a *app) writePlan(name string, p reconcile.Plan) error {
	data, err := p.Encode()
	if err != nil {
		return err
	}
	if name == "-" {
		_, err := a.stdout.Write(data)
		return err
	}
	if err := checkPlanFile(name); err != nil {
		return err
	}
	if info, err := os.Stat(name); err == nil && !info.Mode().IsRegular() {
		return writeInto(name, data)
	}
	return replaceFile(name, data)
}

// writeInto writes to a pipe or a device.
func writeInto(name string, data []byte) error {
	f, err := os.OpenFile(name, os.O_WRONLY, 0)
	if err != nil {
		return fmt.Errorf("write plan: %w", err)
	}
	_, err = f.Write(data)
	return errors.Join(err, f.Close())
}

// replaceFile puts data at name so that a crash leaves the old file or the new one:
// written beside it, made durable, renamed, and the folder made durable.
func replaceFile(name string, data []byte) (err error) {
	if real, err := filepath.EvalSymlinks(name); err == nil {
		name = real
	}
	dir := filepath.Dir(name)
	f, err := os.CreateTemp(dir, ".reconcile-plan-*")
	if err != nil {
		return fmt.Errorf("write plan: %w", err)
	}
	defer func() {
		if err != nil {
			err = fmt.Errorf("write plan: %w", errors.Join(err, os.Remove(f.Name())))
		}
	}()
	if _, err = f.Write(data); err == nil {
		err = f.Sync()
	}
	// The mode that a file made by a shell would have, less what others need not see.
	if err = errors.Join(err, f.Chmod(0o640), f.Close()); err != nil {
		return err
	}
	if err = os.Rename(f.Name(), name); err != nil {
		return err
	}
	return syncDir(dir)
}

func syncDir(dir string) error {
	d, err := os.Open(dir)
	if err != nil {
		return fmt.Errorf("write plan: %w", err)
	}
	err = d.Sync()
	return errors.Join(ignoreUnsupported(err), d.Close())
}

// ignoreUnsupported: some file systems cannot sync a folder, and the plan is there
// all the same.
func ignoreUnsupported(err error) error {
	if errors.Is(err, errors.ErrUnsupported) || errors.Is(err, fs.ErrInvalid) {
		return nil
	}
	return err
}
