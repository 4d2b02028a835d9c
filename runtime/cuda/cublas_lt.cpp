#include "runtime/cuda/cublas_lt.hpp"

#include <map>
#include <optional>
#include <vector>

#include <fmt/core.h>

#include "plan/text/errors.hpp"
#include "runtime/cuda/check.hpp"
#include "runtime/cuda/cublas_product.hpp"
#include "runtime/cuda/product_choice.hpp"
#include "runtime/cuda/product_timer.hpp"

namespace mgplan::runtime::cuda {
namespace {

const char* epilogue_text(const Gemm& x) {
    if (x.bias != nullptr) return ", with a bias";
    return x.row_sums != nullptr ? ", with sums of rows" : "";
}

RunError no_algorithm_for(const Gemm& x) {
    return RunError(fmt::format("rank {}: cuBLASLt has no algorithm for {} products ({}{}, {}) x ({}{}, {}) of {} into {}{}",
                                rank_of_this_thread(), x.batch, x.transpose_a ? "transposed " : "", x.m, x.k,
                                x.transpose_b ? "transposed " : "", x.k, x.n, to_string(x.input), to_string(x.output), epilogue_text(x)));
}

/// Most products that are remembered: experts have products of ever new sizes, and beyond this number those not `kept` are dropped.
constexpr std::size_t kMostKnown = 8192;

struct Known {
    CublasProduct product;
    cublasLtMatmulAlgo_t algorithm{};
    bool kept = false;    ///< a backward's recomputation must multiply as the forward did
    bool chosen = false;  ///< by timing
};

/// Part of a product's key, so that a product that must be the same on all ranks takes no choice of another layer of the same size.
using Asked = model::ProductAlgorithm;
using Kind = std::pair<ProductKey, Asked>;

}  // namespace

struct CublasLt::State {
    cudaStream_t stream = nullptr;
    bool times = false;
    cublasLtHandle_t handle = nullptr;
    std::map<Kind, Known> known;
    std::map<ProductKey, std::optional<cublasLtMatmulAlgo_t>> of_sizes;  ///< of_near_size(); none: the library has none
    std::optional<ProductTimer> timer;

    [[nodiscard]] bool timed(const Gemm& x) const { return times && worth_timing(x); }
    [[nodiscard]] Asked asked(const Gemm& x) const {
        if (timed(x)) return Asked::timed;
        return x.algorithm == Asked::near ? Asked::near : Asked::first;
    }
    [[nodiscard]] bool captures() const;
    [[nodiscard]] const cublasLtMatmulAlgo_t* choice_without_sum(const CublasProduct& product, const Gemm& x) const;
    [[nodiscard]] cublasLtMatmulAlgo_t fastest_of(const CublasProduct& product, const Gemm& x,
                                                  const std::vector<cublasLtMatmulAlgo_t>& candidates);
    [[nodiscard]] const std::optional<cublasLtMatmulAlgo_t>& choice_of_near_size(const Gemm& x);
    [[nodiscard]] Known prepare(const Gemm& x);
};

bool CublasLt::State::captures() const {
    cudaStreamCaptureStatus status{};
    MGPLAN_CUDA(cudaStreamIsCapturing(stream, &status));
    return status != cudaStreamCaptureStatusNone;
}

/// For a product that adds to c: returns the algorithm timed for the same product that overwrites c, or nullptr if it is not timed,
/// cannot compute this one, or adds in fewer bits, which makes it a different product.
const cublasLtMatmulAlgo_t* CublasLt::State::choice_without_sum(const CublasProduct& product, const Gemm& x) const {
    Gemm twin = x;
    twin.beta = 0;
    if (adds_fast(twin) != adds_fast(x)) return nullptr;
    const auto found = known.find({key_of(twin), Asked::timed});
    if (found == known.end() || !found->second.chosen || !product.takes(handle, x, found->second.algorithm)) return nullptr;
    return &found->second.algorithm;
}

cublasLtMatmulAlgo_t CublasLt::State::fastest_of(const CublasProduct& product, const Gemm& x,
                                                 const std::vector<cublasLtMatmulAlgo_t>& candidates) {
    if (!timer) timer.emplace(stream);
    std::vector<std::optional<double>> seconds;
    for (const auto& candidate : candidates)
        seconds.push_back(timer->measure([&] {
            const bool ran = product.run(handle, x, candidate, stream) == CUBLAS_STATUS_SUCCESS;
            if (!ran) static_cast<void>(cudaGetLastError());  // the next launch of this thread would end with it
            return ran;
        }));
    return candidates[fastest(seconds)];
}

const std::optional<cublasLtMatmulAlgo_t>& CublasLt::State::choice_of_near_size(const Gemm& x) {
    const Gemm near = of_near_size(x);
    const auto [entry, fresh] = of_sizes.try_emplace(key_of(near));
    if (fresh) {
        const auto found = CublasProduct(near).candidates(handle, near, 1);
        if (!found.empty()) entry->second = found.front();
    }
    return entry->second;
}

Known CublasLt::State::prepare(const Gemm& x) {
    Known made{CublasProduct(x)};
    if (x.algorithm == model::ProductAlgorithm::near) {
        const auto& choice = choice_of_near_size(x);
        if (choice && made.product.takes(handle, x, *choice)) {
            made.algorithm = *choice;
            return made;
        }
    }
    made.kept = timed(x);
    if (made.kept && x.beta != 0) {
        // A sum cannot be repeated to time it. The first microbatch of a step writes gradients and the others add to them, so the product
        // that overwrites was mostly timed before.
        if (const cublasLtMatmulAlgo_t* const choice = choice_without_sum(made.product, x)) {
            made.algorithm = *choice;
            return made;
        }
    }
    const bool now = made.kept && x.beta == 0 && !captures();
    const auto candidates = made.product.candidates(handle, x, now ? kMostCandidates : 1);
    if (candidates.empty()) throw no_algorithm_for(x);
    made.algorithm = now && candidates.size() > 1 ? fastest_of(made.product, x, candidates) : candidates.front();
    made.chosen = now;
    return made;
}

CublasLt::CublasLt(cudaStream_t stream, bool times_candidates) : state_(std::make_unique<State>()) {
    state_->stream = stream;
    state_->times = times_candidates;
    MGPLAN_CUBLAS(cublasLtCreate(&state_->handle));
}

CublasLt::~CublasLt() {
    state_->known.clear();
    if (state_->handle != nullptr) cublasLtDestroy(state_->handle);
}

void CublasLt::multiply(const Gemm& x) {
    if (x.m == 0 || x.n == 0 || x.batch == 0) return;
    MGPLAN_ASSERT(x.k > 0, "a product adds something up");
    auto& known = state_->known;
    const Kind kind{key_of(x), state_->asked(x)};
    auto entry = known.find(kind);
    if (entry == known.end()) {
        if (known.size() >= kMostKnown) std::erase_if(known, [](const auto& each) { return !each.second.kept; });
        entry = known.emplace(kind, state_->prepare(x)).first;
    }
    MGPLAN_CUBLAS(entry->second.product.run(state_->handle, x, entry->second.algorithm, state_->stream));
}

}  // namespace mgplan::runtime::cuda
