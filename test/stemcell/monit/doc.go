// Package monit replaces monit 5.2.5, the process supervisor of BOSH's stemcells, in the test stemcell. That version is not available as
// a package, and the BOSH agent depends on behavior that changed before Debian's version 5.33. The replacement supports the control
// files, HTTP requests and commands that the agent and the jobs of releases use. It behaves like monit 5.2.5:
//
//   - It does not wait for start and stop programs. Only the process in the pid file counts.
//   - stop runs the stop program of a running process, even if the service is not monitored.
//   - A group without members is not an error.
//   - It remembers across restarts which services are not monitored.
//
// It rejects control files with unknown statements, and logs if statements, which it ignores.
// docs/development/test-stemcell.md lists the differences.
package monit
