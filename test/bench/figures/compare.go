package figures

import "fmt"

// Noise is how much more CPU time than before is still none: runs on one machine differ by as much.
const Noise = 1.25

// Regressions are what the new results have worse than the old ones, beyond noise: more requests of a method, or more CPU
// time. Wall time is not compared, for it tells of what else the machine does. CPU time is compared in units of curl's in the same
// run, since the two may have been taken on different machines.
func Regressions(before, now *Results) []string {
	var found []string
	unit := unitOf(before, now)
	for _, each := range now.Calls {
		if each.Name == Curl || each.Name == Kubectl { // they are not ours
			continue
		}
		found = append(found, slower(each.Name, before.call(each.Name).CPU, each.CPU, unit)...)
	}
	for _, sizes := range [][2][]Size{{before.Scale, now.Scale}, {before.Shared, now.Shared}} {
		for _, size := range sizes[1] {
			for _, method := range size.Methods {
				earlier, ok := methodIn(sizes[0], size, method.Name)
				if !ok {
					continue
				}
				name := fmt.Sprintf("%s (%s, %d machines)", method.Name, size.Name, size.Machines)
				if len(method.Requests) > len(earlier.Requests) {
					found = append(found, fmt.Sprintf("%s sends %d requests, %d before: %v", name, len(method.Requests), len(earlier.Requests), method.Requests))
				}
				found = append(found, slower(name, earlier.CPU, method.CPU, unit)...)
			}
		}
	}
	return found
}

// unitOf is how much more CPU time everything takes now because of the machine alone.
func unitOf(before, now *Results) float64 {
	was, is := before.call(Curl).CPU.Median(), now.call(Curl).CPU.Median()
	if was == 0 || is == 0 {
		return 1
	}
	return is / was
}

// slower names what takes more than noise: its median by far, and a quarter of its values at the lower end more than three
// quarters did.
func slower(name string, before, now Distribution, unit float64) []string {
	if len(before) == 0 || len(now) == 0 {
		return nil
	}
	_, upper := before.Quartiles()
	lower, _ := now.Quartiles()
	was, is := before.Median()*unit, now.Median()
	if is <= was*Noise || lower <= upper*unit {
		return nil
	}
	return []string{fmt.Sprintf("%s takes %.1f ms of CPU time, %.1f before", name, is, was)}
}

func methodIn(sizes []Size, like Size, name string) (Method, bool) {
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
