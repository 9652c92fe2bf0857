package datafile

import (
	"errors"
	"fmt"
)

// ErrLegacy means a file of format 0.1, which no column is read from.
var ErrLegacy = errors.New("file written in the legacy Lance 0.1 format (LanceDB before 0.11, or data storage version legacy); rewrite the table with a newer LanceDB")

// UnsupportedError means a sound file that uses something this package does not
// read.
type UnsupportedError struct {
	Column   string // dotted path of the field; empty when the whole file is meant
	Page     int    // page of the file column, from 0; -1 when no page is meant
	Encoding string // what is not read
}

func (e *UnsupportedError) Error() string {
	return place(e.Column, e.Page) + "not supported: " + e.Encoding
}

// CorruptError means bytes that contradict themselves.
type CorruptError struct {
	Column string // dotted path of the field; empty when the whole file is meant
	Page   int    // page of the file column, from 0; -1 when no page is meant
	Reason string
}

func (e *CorruptError) Error() string { return place(e.Column, e.Page) + "corrupt: " + e.Reason }

func place(column string, page int) string {
	switch {
	case column == "":
		return "data file is "
	case page < 0:
		return fmt.Sprintf("column %q is ", column)
	}
	return fmt.Sprintf("column %q, page %d is ", column, page)
}

func corrupt(format string, args ...any) error {
	return &CorruptError{Page: -1, Reason: fmt.Sprintf(format, args...)}
}

func unsupported(format string, args ...any) error {
	return &UnsupportedError{Page: -1, Encoding: fmt.Sprintf(format, args...)}
}

// at names column and page in an error of a decoder, which knows neither.
func at(err error, column string, page int) error {
	var c *CorruptError
	var u *UnsupportedError
	switch {
	case err == nil:
		return nil
	case errors.As(err, &c):
		if c.Column == "" {
			c.Column, c.Page = column, page
		}
		return c
	case errors.As(err, &u):
		if u.Column == "" {
			u.Column, u.Page = column, page
		}
		return u
	}
	return fmt.Errorf("read page %d of column %q: %w", page, column, err)
}
