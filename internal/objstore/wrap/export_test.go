package wrap

// Rate is the number of requests per second that the gate lets pass; 0 is any.
func (g *Gate) Rate() float64 {
	g.pace.mu.Lock()
	defer g.pace.mu.Unlock()
	return g.pace.rate
}
