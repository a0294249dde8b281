package api

// Flush returns the arguments of the command that writes all cached data of the node to its disks.
func Flush() []string { return []string{"node", "flush"} }
