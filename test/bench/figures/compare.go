package figures

import "fmt"

// Noise is how much more CPU time than before is still none: runs on one machine differ by as much.
const Noise = 1.25

// Regressions are what the new results have worse than the old ones, beyond noise: more requests of a method, or more CPU
// time. Wall time is not compared, for it tells of what else the machine does. CPU time is compared in units of curl's in the same
// run, since the two may have been taken on different machines.
func Regressions(baseline, current *Results) []string {
	var found []string
	ratio := cpuRatio(baseline, current)
	for _, call := range current.Calls {
		if call.Name == Curl || call.Name == Kubectl { // they are not ours
			continue
		}
		found = append(found, cpuRegression(call.Name, baseline.costOf(call.Name).CPU, call.CPU, ratio)...)
	}
	for _, sizes := range [][2][]ScaleResult{{baseline.Scale, current.Scale}, {baseline.Shared, current.Shared}} {
		for _, size := range sizes[1] {
			for _, method := range size.Methods {
				earlier, ok := findMethod(sizes[0], size, method.Name)
				if !ok {
					continue
				}
				name := fmt.Sprintf("%s (%s, %d machines)", method.Name, size.Name, size.Machines)
				if len(method.Requests) > len(earlier.Requests) {
					found = append(found, fmt.Sprintf("%s sends %d requests, %d before: %v", name, len(method.Requests), len(earlier.Requests), method.Requests))
				}
				found = append(found, cpuRegression(name, earlier.CPU, method.CPU, ratio)...)
			}
		}
	}
	return found
}

// cpuRatio is how much more CPU time everything takes now because of the machine alone.
func cpuRatio(baseline, current *Results) float64 {
	was, is := baseline.costOf(Curl).CPU.Median(), current.costOf(Curl).CPU.Median()
	if was == 0 || is == 0 {
		return 1
	}
	return is / was
}

// cpuRegression names what takes more than noise: its median by far, and a quarter of its values at the lower end more than three
// quarters did.
func cpuRegression(name string, baseline, current Distribution, ratio float64) []string {
	if len(baseline) == 0 || len(current) == 0 {
		return nil
	}
	_, upper := baseline.Quartiles()
	lower, _ := current.Quartiles()
	was, is := baseline.Median()*ratio, current.Median()
	if is <= was*Noise || lower <= upper*ratio {
		return nil
	}
	return []string{fmt.Sprintf("%s takes %.1f ms of CPU time, %.1f before", name, is, was)}
}

func findMethod(sizes []ScaleResult, like ScaleResult, name string) (Method, bool) {
	for _, size := range sizes {
		if size.Name != like.Name || size.Machines != like.Machines {
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
