package chaos

import (
	"hash/fnv"
	"math/rand/v2"
	"net/http"
	"os"
	"regexp"
	"strconv"
	"sync"

	"github.com/onsi/ginkgo/v2"
	"github.com/onsi/gomega"

	"bosh-kubernetes-cpi/test/harness/apiproxy"
)

// Pattern selects cases by their names: "all", or a regular expression. If it is empty, the seed selects some of them.
var Pattern = os.Getenv("CASES")

// IsSelected reports whether this run tries the case. Without a Pattern, the seed selects about one in parts cases, so that runs with
// consecutive seeds together try all.
func IsSelected(name string, parts uint64) bool {
	switch Pattern {
	case "":
		hash := fnv.New64a()
		_, _ = hash.Write([]byte(name))
		return (hash.Sum64()+Seed())%parts == 0
	case "all":
		return true
	}
	return regexp.MustCompile(Pattern).MatchString(name)
}

// Seed returns the seed of all random decisions of a run.
func Seed() uint64 { return uint64(ginkgo.GinkgoRandomSeed()) } //nolint:gosec // the conversion of a seed may wrap

// NewRandom returns a generator of random numbers. Generators with different streams are independent.
func NewRandom(seed, stream uint64) *rand.Rand {
	return rand.New(rand.NewPCG(seed, stream)) //nolint:gosec // not used for a secret
}

// Weighted is a value with its relative frequency.
type Weighted[T any] struct {
	Value  T
	Weight int
}

// Weigh returns a value with this relative frequency.
func Weigh[T any](weight int, value T) Weighted[T] { return Weighted[T]{value, weight} }

// Draw returns the value of a random element.
func Draw[T any](random *rand.Rand, values []Weighted[T]) T {
	sum := 0
	for _, value := range values {
		sum += value.Weight
	}
	remaining := random.IntN(sum)
	for _, value := range values {
		if remaining -= value.Weight; remaining < 0 {
			return value.Value
		}
	}
	panic("no weights")
}

// Size returns the value of an environment variable that sets the size of a test, or the fallback if it is not set.
func Size(variable string, fallback int) int {
	ginkgo.GinkgoHelper()
	value, ok := os.LookupEnv(variable)
	if !ok {
		return fallback
	}
	size, err := strconv.Atoi(value)
	gomega.Expect(err).NotTo(gomega.HaveOccurred(), variable)
	return size
}

// RandomFaults injects a random fault into each request.
func RandomFaults(random *rand.Rand, faults []Weighted[func(n int) apiproxy.Fault]) apiproxy.Fault {
	var mutex sync.Mutex
	return func(n int, w http.ResponseWriter, r *http.Request, next http.Handler) {
		mutex.Lock()
		fault := Draw(random, faults)
		mutex.Unlock()
		fault(n)(n, w, r, next)
	}
}
