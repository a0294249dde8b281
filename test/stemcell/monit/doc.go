// Package monit is a replacement for monit 5.2.5, the process supervisor of BOSH's stemcells, in the test stemcell: this version is not
// available as a package, and the BOSH agent depends on behavior that Debian's 5.33 has changed. The replacement reads the same control
// files, answers the same HTTP requests and has the same commands, as far as the agent and the jobs of releases use them:
//
//   - monit does not wait for start and stop programs: only the process in the pid file counts
//   - stop runs the stop program of a running process, also if the service is not monitored
//   - a group without members is not an error
//   - monit remembers over restarts which services are not monitored
//
// It refuses control files with unknown statements. It logs tests that it does not support (files, devices, load).
// docs/development/test-stemcell.md lists the differences.
package monit
