#pragma once
// Describes one kind of matrix product to cuBLASLt and finds algorithms for it.

#include <cublasLt.h>
#include <cuda_runtime_api.h>

#include <array>
#include <cstdint>
#include <utility>
#include <vector>

#include "runtime/cuda/ops/launch.hpp"

namespace mgplan::runtime::cuda {

/// All varying properties of a product that its algorithm depends on, including workspace and alignments.
using ProductKey = std::array<std::int64_t, 22>;
[[nodiscard]] ProductKey key_of(const Gemm& gemm);

/// Returns true if a product in fp8 may add in fewer bits than fp32.
[[nodiscard]] bool adds_fast(const Gemm& gemm);

/// Descriptions that all products of one key share; the addresses are those of each call.
class CublasProduct {
public:
    CublasProduct() = default;
    /// Throws RunError if this cuBLAS cannot describe the product.
    explicit CublasProduct(const Gemm& gemm);

    /// The heuristic's answers, `most` at the most, the one that it takes for the fastest first; none needs more than the product's
    /// workspace. Empty where there is none.
    [[nodiscard]] std::vector<cublasLtMatmulAlgo_t> candidates(cublasLtHandle_t handle, const Gemm& gemm, int most) const;
    /// Returns true if another product's algorithm does this one too, within its workspace.
    [[nodiscard]] bool takes(cublasLtHandle_t handle, const Gemm& gemm, const cublasLtMatmulAlgo_t& algorithm) const;
    /// Issues one.
    [[nodiscard]] cublasStatus_t run(cublasLtHandle_t handle, const Gemm& gemm, const cublasLtMatmulAlgo_t& algorithm,
                                     cudaStream_t stream) const;

private:
    template <class Handle, cublasStatus_t (*destroy)(Handle)>
    class Owned {
    public:
        Owned() = default;
        Owned(Owned&& other) noexcept : handle_(std::exchange(other.handle_, nullptr)) {}
        Owned& operator=(Owned&& other) noexcept {
            std::swap(handle_, other.handle_);
            return *this;
        }
        ~Owned() {
            if (handle_ != nullptr) destroy(handle_);
        }
        [[nodiscard]] Handle* place() { return &handle_; }
        operator Handle() const { return handle_; }  // NOLINT(google-explicit-constructor)

    private:
        Handle handle_ = nullptr;
    };
    using Operation = Owned<cublasLtMatmulDesc_t, cublasLtMatmulDescDestroy>;
    using Layout = Owned<cublasLtMatrixLayout_t, cublasLtMatrixLayoutDestroy>;
    using Preference = Owned<cublasLtMatmulPreference_t, cublasLtMatmulPreferenceDestroy>;

    static Layout layout(Dtype dtype, std::int64_t rows, std::int64_t columns, std::int64_t pitch, std::int64_t batch, std::int64_t stride);
    void set_scales(const Gemm& gemm) const;
    void set_scale_modes(const Gemm& gemm) const;
    void set_epilogue(const Gemm& gemm) const;
    void set_bias(const Gemm& gemm) const;
    static Preference preference(const Gemm& gemm);

    Operation operation_;
    Layout a_, b_, c_;  ///< in cuBLAS's terms: columns first, so a and b change places
};

}  // namespace mgplan::runtime::cuda
