#include "runtime/cpu/ops/blas.hpp"

#include <cblas.h>
#include <sys/mman.h>

#include <algorithm>
#include <limits>
#include <mutex>
#include <new>
#include <set>

#include "plan/text/errors.hpp"
#include "runtime/memory/huge_pages.hpp"

// OpenBLAS built without threads looks for a free work buffer without a lock (driver/others/memory.c, blas_memory_alloc:
// the search is locked only under SMP or USE_LOCKING, and Debian's serial build has neither), so two ranks that multiply
// at the same moment can get the same buffer and both wrong products: 1 % of small products with four threads on two
// cores. The linker routes OpenBLAS's calls of the two functions through these (runtime/CMakeLists.txt).
extern "C" {
// NOLINTBEGIN(bugprone-reserved-identifier): the names that ld's --wrap prescribes
void* __real_blas_memory_alloc(int position);
void __real_blas_memory_free(void* buffer);

static std::mutex buffers_lock;
static std::size_t buffers_taken = 0;
static constexpr std::size_t kBufferBytes = std::size_t{128} << 20U;  // BUFFER_SIZE of x86-64 in OpenBLAS 0.3.21, elsewhere 32 MiB or more

/// Throws std::bad_alloc where a new buffer does not fit into the address space (ulimit -v): OpenBLAS would try again for ever.
static void require_room_for_a_buffer() {
    void* const room = ::mmap(nullptr, kBufferBytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (room == MAP_FAILED) throw std::bad_alloc();
    ::munmap(room, kBufferBytes);
}

void* __wrap_blas_memory_alloc(int position);
void* __wrap_blas_memory_alloc(int position) {
    const std::scoped_lock lock(buffers_lock);
    // Buffers are kept for good and reused; new ones are rare.
    static std::set<void*> known;
    if (buffers_taken == known.size()) require_room_for_a_buffer();
    void* const buffer = __real_blas_memory_alloc(position);
    ++buffers_taken;
    if (known.insert(buffer).second) mgplan::runtime::prefer_huge_pages(buffer, std::size_t{32} << 20U);
    return buffer;
}

void __wrap_blas_memory_free(void* buffer);
void __wrap_blas_memory_free(void* buffer) {
    const std::scoped_lock lock(buffers_lock);
    --buffers_taken;
    __real_blas_memory_free(buffer);
}
// NOLINTEND(bugprone-reserved-identifier)
}

namespace mgplan::runtime {
namespace {

blasint narrow(std::int64_t size) {
    MGPLAN_ASSERT(size >= 0 && size <= std::numeric_limits<blasint>::max(), "sizes of a matrix product fit OpenBLAS's integers");
    return static_cast<blasint>(size);
}

CBLAS_TRANSPOSE transposed(bool yes) {
    return yes ? CblasTrans : CblasNoTrans;
}

template <class Element, class Function>
void call(Function function, bool transpose_a, bool transpose_b, std::int64_t m, std::int64_t n, std::int64_t k, Element alpha,
          Matrix<const Element> a, Matrix<const Element> b, Element beta, Matrix<Element> c) {
    if (m == 0 || n == 0) return;
    if (k == 0) {
        for (std::int64_t row = 0; row < m; ++row) {
            Element* const values = c.data + row * c.pitch;
            if (beta == 0) std::fill(values, values + n, Element{0});
            if (beta != 0) std::for_each(values, values + n, [beta](Element& value) { value *= beta; });
        }
        return;
    }
    function(CblasRowMajor, transposed(transpose_a), transposed(transpose_b), narrow(m), narrow(n), narrow(k), alpha, a.data,
             narrow(a.pitch), b.data, narrow(b.pitch), beta, c.data, narrow(c.pitch));
}

}  // namespace

void gemm(bool transpose_a, bool transpose_b, std::int64_t m, std::int64_t n, std::int64_t k, float alpha, Matrix<const float> a,
          Matrix<const float> b, float beta, Matrix<float> c) {
    call<float>(cblas_sgemm, transpose_a, transpose_b, m, n, k, alpha, a, b, beta, c);
}

void gemm(bool transpose_a, bool transpose_b, std::int64_t m, std::int64_t n, std::int64_t k, double alpha, Matrix<const double> a,
          Matrix<const double> b, double beta, Matrix<double> c) {
    call<double>(cblas_dgemm, transpose_a, transpose_b, m, n, k, alpha, a, b, beta, c);
}

}  // namespace mgplan::runtime
