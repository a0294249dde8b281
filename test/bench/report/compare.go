package report

import "fmt"

// Noise is the factor by which CPU times of equal runs on one host can differ.
const Noise = 1.25

// Regressions describes the methods that send more requests or take more CPU time than in the baseline, beyond noise. It does not
// compare wall time, because that depends on other load on the host. It scales CPU time by the CPU time of curl in the same run, because
// the results can be from different hosts.
func Regressions(baseline, current *Results) []string {
	var regressions []string
	ratio := cpuRatio(baseline, current)
	for _, call := range current.Calls {
		if call.Name == Curl || call.Name == Kubectl { // not parts of the CPI
			continue
		}
		regressions = append(regressions, cpuRegression(call.Name, baseline.costOf(call.Name).CPU, call.CPU, ratio)...)
	}
	for _, sizes := range [][2][]ScaleResult{{baseline.Scale, current.Scale}, {baseline.Shared, current.Shared}} {
		for _, size := range sizes[1] {
			for _, method := range size.Methods {
				earlier, ok := findMethod(sizes[0], size, method.Name)
				if !ok {
					continue
				}
				name := fmt.Sprintf("%s (%s, %d VMs)", method.Name, size.Name, size.VMs)
				if len(method.Requests) > len(earlier.Requests) {
					regressions = append(regressions, fmt.Sprintf("%s sends %d requests, %d before: %v", name, len(method.Requests), len(earlier.Requests), method.Requests))
				}
				regressions = append(regressions, cpuRegression(name, earlier.CPU, method.CPU, ratio)...)
			}
		}
	}
	return regressions
}

// cpuRatio returns the factor by which the current host is slower, according to the CPU time of curl.
func cpuRatio(baseline, current *Results) float64 {
	before, after := baseline.costOf(Curl).CPU.Median(), current.costOf(Curl).CPU.Median()
	if before == 0 || after == 0 {
		return 1
	}
	return after / before
}

// cpuRegression returns a regression if the median increased beyond noise, and the lower quartile is above the previous upper quartile.
func cpuRegression(name string, baseline, current Distribution, ratio float64) []string {
	if len(baseline) == 0 || len(current) == 0 {
		return nil
	}
	_, upper := baseline.Quartiles()
	lower, _ := current.Quartiles()
	before, after := baseline.Median()*ratio, current.Median()
	if after <= before*Noise || lower <= upper*ratio {
		return nil
	}
	return []string{fmt.Sprintf("%s takes %.1f ms of CPU time, %.1f before", name, after, before)}
}

func findMethod(sizes []ScaleResult, reference ScaleResult, name string) (Method, bool) {
	for _, size := range sizes {
		if size.Name != reference.Name || size.VMs != reference.VMs {
			continue
		}
		for _, method := range size.Methods {
			if method.Name == name {
				return method, true
			}
		}
	}
	return Method{}, false
}
