package datafile

// Array is the values of one field.
type Array struct{ n int }

// Descriptor says where the value of a blob is.
type Descriptor struct {
	Kind           uint8 // 0 inline, 1 packed, 2 dedicated, 3 external
	Position, Size uint64
	ID             uint32
	URI            string
	Null, Empty    bool
}

func (a *Array) Len() int                                 { return a.n }
func (a *Array) Null(i int) bool                          { return true }
func (a *Array) Int(i int) (v int64, ok bool)             { return 0, false }
func (a *Array) Uint(i int) (v uint64, ok bool)           { return 0, false }
func (a *Array) Float(i int) (v float64, ok bool)         { return 0, false }
func (a *Array) Bool(i int) (v, ok bool)                  { return false, false }
func (a *Array) Bytes(i int) []byte                       { return nil }
func (a *Array) String(i int) string                      { return "" }
func (a *Array) List(i int) (items *Array, lo, hi int)    { return nil, 0, 0 }
func (a *Array) Child(name string) *Array                 { return nil }
func (a *Array) Descriptor(i int) (d Descriptor, ok bool) { return d, false }
func (a *Array) Take(keep []int) *Array                   { return a }

// Nulls gives n nulls of a field that a file does not hold.
func Nulls(f *Field, n int) *Array { return &Array{n: n} }
