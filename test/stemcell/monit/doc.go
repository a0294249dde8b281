// Package monit is a stand-in for monit 5.2.5, the process supervisor of BOSH's stemcells, in the test
// stemcell: no package of that version is to be had, and Debian's 5.33 behaves differently where a BOSH
// agent notices. The stand-in reads the same control files, answers the same HTTP requests and has the same
// commands, as far as the agent and the jobs of releases use them:
//
//   - a start or stop program is started and not waited for: what counts is the process in the pid file
//   - stop runs the stop program of a process that runs, also of one that is no longer monitored
//   - a group without members is no error
//   - which services are not monitored is remembered over restarts of monit
//
// It refuses control files that it does not understand. Tests that it reads but does not carry out (files,
// devices, load) are named in its log. docs/development/test-stemcell.md tells what it lacks.
package monit
