package datafile

func (r *reading) open20(f *Field, name string) (stream, int64, error) {
	return nil, 0, at(unsupported("format 2.0"), name, -1)
}
