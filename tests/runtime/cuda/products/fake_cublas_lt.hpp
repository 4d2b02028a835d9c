#pragma once
// cuBLASLt and CUDA's events as far as runtime/cuda/cublas_lt.cpp uses them, on the host: candidates take the time that a test gives them,
// by a clock that nothing else moves. Launches that a capturing stream or an aliased sum forbids are refused.

#include <array>
#include <cstddef>
#include <cstdint>
#include <vector>

namespace mgplan::tests {

/// What the heuristic answers with, and what became of it.
struct FakeCandidate {
    double seconds = 1e-3;
    std::size_t workspace_bytes = 0;
    bool fails = false;  ///< when it is launched
};

struct FakeLaunch {
    std::size_t candidate = 0;
    bool adds = false;  ///< beta is not 0
    bool operator==(const FakeLaunch&) const = default;
};

/// What a product's description says of its epilogue, in the library's own numbers.
struct FakeEpilogue {
    std::int32_t kind = 1;   ///< CUBLASLT_EPILOGUE_DEFAULT
    std::int32_t type = -1;  ///< of the vector: that of the product
    const void* vector = nullptr;
    bool operator==(const FakeEpilogue&) const = default;
};

struct FakeCublasLt {
    std::vector<FakeCandidate> candidates{FakeCandidate{}};
    bool capturing = false;
    bool refuses_checks = false;  ///< cublasLtMatmulAlgoCheck
    std::vector<FakeLaunch> launches;
    std::vector<FakeEpilogue> epilogues;  ///< of each launch
    FakeEpilogue asked_with;              ///< of the last product that the heuristic was asked for
    std::vector<int> asked;               ///< for how many candidates, each time
    /// Whose: elements of a column and columns of the sum, then of the first operand, as the library sees them.
    std::vector<std::array<std::uint64_t, 4>> asked_of;
    bool last_failed = false;       ///< what cudaGetLastError has to say
    int waits = 0;                  ///< of the host for the card
    std::int64_t descriptions = 0;  ///< that live
    double now = 0;                 ///< of the card, seconds
};
extern FakeCublasLt fake_cublas_lt;

}  // namespace mgplan::tests
