package kube

import (
	"net/http"
	"sync/atomic"
	"time"
)

// serverClock is the clock of the API server, according to the first response. Later responses would not improve it for the time at which
// the program started: the monotonic clock, which measures the time in between, stops while the host is suspended.
type serverClock struct {
	first atomic.Pointer[clockReading]
}

// clockReading is the time of the API server's clock when this host received a response.
type clockReading struct {
	date     time.Time
	received time.Time // by the clock of this host; contains the monotonic time
}

// ServerTime converts a time of this process to a time of the API server's clock. It ignores the wall clock of this host: local must
// contain the monotonic time, as the result of time.Now does. The result is accurate to half a second, plus the time that the first
// response took from the server to this host. It is zero before the first response.
func (c *Client) ServerTime(local time.Time) time.Time {
	reading := c.clock.first.Load()
	if reading == nil {
		return time.Time{}
	}
	return reading.date.Add(local.Sub(reading.received))
}

// observe returns a transport that reads the clock in responses. It ignores a 5xx, which may be from a load balancer.
func (c *serverClock) observe(next http.RoundTripper) http.RoundTripper {
	return clockObserver{next, c}
}

type clockObserver struct {
	http.RoundTripper
	clock *serverClock
}

// RoundTrip implements http.RoundTripper.
func (o clockObserver) RoundTrip(request *http.Request) (*http.Response, error) {
	response, err := o.RoundTripper.RoundTrip(request)
	if err != nil || response.StatusCode >= http.StatusInternalServerError || o.clock.first.Load() != nil {
		return response, err
	}
	if date, err := http.ParseTime(response.Header.Get("Date")); err == nil {
		// The header lacks the fraction of the second, which is half a second on average.
		o.clock.first.CompareAndSwap(nil, &clockReading{date: date.Add(time.Second / 2), received: time.Now()})
	}
	return response, nil
}

// WrappedRoundTripper lets client-go find the transport below, for example to close its connections.
func (o clockObserver) WrappedRoundTripper() http.RoundTripper { return o.RoundTripper }
