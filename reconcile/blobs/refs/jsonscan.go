package refs

import "iter"

// members yields the members of an object in valid JSON: each name, and the bytes of
// its value, which are part of b.
func members(b []byte) iter.Seq2[string, []byte] {
	return func(yield func(string, []byte) bool) {
		i := space(b, 0) + 1 // behind the brace
		for {
			i = space(b, i)
			if i >= len(b) || b[i] == '}' {
				return
			}
			if b[i] == ',' {
				i = space(b, i+1)
			}
			end := value(b, i)
			name, ok := jsonText(b[i:end], false)
			if !ok {
				name = "" // half a character is no column's name
			}
			i = space(b, space(b, end)+1) // behind the colon
			end = value(b, i)
			if !yield(name, b[i:end:end]) {
				return
			}
			i = end
		}
	}
}

// space is the first place from i on that is no white space.
func space(b []byte, i int) int {
	for i < len(b) && (b[i] == ' ' || b[i] == '\t' || b[i] == '\n' || b[i] == '\r') {
		i++
	}
	return i
}

// value is where the value that begins at i ends.
func value(b []byte, i int) int {
	depth := 0
	for i < len(b) {
		switch b[i] {
		case '"':
			for i++; i < len(b) && b[i] != '"'; i++ {
				if b[i] == '\\' {
					i++
				}
			}
		case '{', '[':
			depth++
		case '}', ']':
			if depth == 0 {
				return i // of the object around a number or word
			}
			depth--
		default:
			if depth == 0 && (b[i] == ',' || b[i] == ' ' || b[i] == '\t' || b[i] == '\n' || b[i] == '\r') {
				return i
			}
			i++
			continue
		}
		i++
		if depth == 0 {
			return i
		}
	}
	return i
}
