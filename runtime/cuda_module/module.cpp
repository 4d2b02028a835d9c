// The one object that the module gives away.

#include <cublasLt.h>
#include <cuda_runtime_api.h>

#include <array>
#include <cstring>
#include <utility>

#include <fmt/core.h>

#include "model/ops/checks.hpp"
#include "model/ops/fused_attention.hpp"
#include "model/ops/scratch.hpp"
#include "runtime/comm/nccl/nccl_world.hpp"
#include "runtime/cuda/check.hpp"
#include "runtime/cuda/cuda_device.hpp"
#include "runtime/cuda/cudnn_attention.hpp"

namespace mgplan::runtime::cuda {
namespace {

/// 13000 is "13.0".
std::string version_text(int coded) {
    return fmt::format("{}.{}", coded / 1000, coded % 1000 / 10);
}

class Module final : public CudaModule {
public:
    std::string unavailable() override {
        int driver = 0, runtime = 0, count = 0;
        static_cast<void>(cudaDriverGetVersion(&driver));
        static_cast<void>(cudaRuntimeGetVersion(&runtime));
        if (driver == 0) return "there is no NVIDIA driver (libcuda.so.1) on this machine; install one, or use the CPU";
        const cudaError_t error = cudaGetDeviceCount(&count);
        static_cast<void>(cudaGetLastError());
        if (error == cudaErrorInsufficientDriver) {
            return fmt::format("the NVIDIA driver is for CUDA {} and the CUDA module needs {}; install a newer driver, or use the CPU",
                               version_text(driver), version_text(runtime));
        }
        if (error == cudaErrorNoDevice || (error == cudaSuccess && count == 0)) {
            return "the NVIDIA driver finds no GPU; check nvidia-smi and CUDA_VISIBLE_DEVICES, or use the CPU";
        }
        if (error != cudaSuccess) {
            return fmt::format("CUDA does not start: {} ({}); check nvidia-smi, or use the CPU", cudaGetErrorName(error),
                               cudaGetErrorString(error));
        }
        return {};
    }

    std::vector<CudaCard> cards() override {
        int count = 0;
        MGPLAN_CUDA(cudaGetDeviceCount(&count));
        std::vector<CudaCard> list;
        for (int ordinal = 0; ordinal < count; ++ordinal) {
            // No call here makes a context, which would take some 500 MB of every card of the machine in every rank.
            cudaDeviceProp properties{};
            MGPLAN_CUDA(cudaGetDeviceProperties(&properties, ordinal));
            list.push_back({ordinal, properties.name, traits_of(properties), static_cast<std::int64_t>(properties.totalGlobalMem),
                            properties.multiProcessorCount});
        }
        return list;
    }

    std::int64_t free_bytes(int ordinal) override {
        std::size_t free = 0, total = 0;
        MGPLAN_CUDA(cudaSetDevice(ordinal));
        MGPLAN_CUDA(cudaMemGetInfo(&free, &total));
        return static_cast<std::int64_t>(free);
    }

    CudaProbe probe(int ordinal) override {
        CudaProbe answers;
        MGPLAN_CUDA(cudaSetDevice(ordinal));
        int reads = 0;
        MGPLAN_CUDA(cudaDeviceGetAttribute(&reads, cudaDevAttrPageableMemoryAccess, ordinal));
        answers.reads_pageable_memory = reads != 0;
        try {
            answers.cudnn_device = cudnn_device_properties(ordinal);
        } catch (const RunError& error) {
            answers.cudnn_device = error.what();
        }
        cudaDeviceProp properties{};
        MGPLAN_CUDA(cudaGetDeviceProperties(&properties, ordinal));
        // As large models have them, and as the tests' small ones do. Whole sequences, packed: each plan is compiled, which takes up to two
        // seconds, and tests have what context parallel ranks see of each other's.
        for (const auto& [places, batch, heads, kv_heads, head_dim] :
             {std::array<std::int64_t, 5>{4096, 1, 32, 8, 128}, {256, 2, 4, 4, 64}, {32, 1, 4, 2, 16}}) {
            for (const bool backward : {false, true}) {
                const model::Positions positions = model::zigzag_positions(places, batch, 1, 0);
                const model::AttentionSizes sizes{positions, positions, heads, kv_heads, head_dim, head_dim, 1, 0};
                if (!model::attention_is_fused(traits_of(properties), Dtype::bf16, sizes, backward)) continue;
                const auto space = model::attention_workspace(traits_of(properties), Dtype::bf16, sizes, backward, true);
                const FusedShape shape{batch, heads, kv_heads, places, places, head_dim, head_dim, true, backward, true};
                answers.attention.emplace_back(fmt::format("{} x {} places, {} heads over {} of {}, packed, {}", batch, places, heads,
                                                           kv_heads, head_dim, backward ? "backward" : "forward"),
                                               try_cudnn_attention(shape, space.library_bytes));
            }
        }
        return answers;
    }

    CudaVersions versions() override {
        int driver = 0, runtime = 0;
        static_cast<void>(cudaDriverGetVersion(&driver));
        static_cast<void>(cudaRuntimeGetVersion(&runtime));
        const auto cublas = static_cast<unsigned>(cublasLtGetVersion());  // 130100 is 13.1.0
        return {version_text(runtime), driver == 0 ? std::string{} : version_text(driver),
                fmt::format("{}.{}.{}", cublas / 10000, cublas / 100 % 100, cublas % 100), cudnn_version(), nccl_version()};
    }

    bool refuses_attention(int ordinal, const model::FusedShape& shape, std::int64_t workspace_bytes) override {
        MGPLAN_CUDA(cudaSetDevice(ordinal));
        return !cudnn_attention_refusal(ordinal, shape, workspace_bytes).empty();
    }

    std::unique_ptr<CudaDeviceInterface> make_device(int ordinal, int rank, bool deterministic, const ArenaScript* script,
                                                     std::shared_ptr<const model::FusedPlans> plans) override {
        if (const std::string why = unavailable(); !why.empty()) throw RunError(why);
        cudaDeviceProp properties{};
        MGPLAN_CUDA(cudaGetDeviceProperties(&properties, ordinal));
        model::KernelTraits traits = traits_of(properties);
        if (deterministic) traits.fused_attention = false;
        traits.fused_plans = std::move(plans);
        return std::make_unique<CudaDevice>(ordinal, rank, traits, script, !deterministic);
    }

    std::unique_ptr<NcclWorldInterface> make_nccl_world(CudaDeviceInterface& device, int rank, int size, const Bootstrap& bootstrap,
                                                        const NcclOptions& options) override {
        return cuda::make_nccl_world(static_cast<CudaDevice&>(device), rank, size, bootstrap, options);
    }

private:
    static model::KernelTraits traits_of(const cudaDeviceProp& properties) {
        return {model::DeviceKind::cuda, 10 * properties.major + properties.minor, !cudnn_version().empty(), CUBLAS_VERSION >= 120900};
    }
};

}  // namespace
}  // namespace mgplan::runtime::cuda

extern "C" {
__attribute__((visibility("default"))) mgplan::runtime::CudaModule* mgplan_cuda_module(const char* interface);
mgplan::runtime::CudaModule* mgplan_cuda_module(const char* interface) {
    static mgplan::runtime::cuda::Module module;
    return interface != nullptr && mgplan::runtime::cuda_interface() == interface ? &module : nullptr;
}
}
