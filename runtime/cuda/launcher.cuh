#pragma once
// Runs the bodies of runtime/cuda/ops on a GPU; launch.hpp lists the functions of a launcher.

#include <cuda_runtime.h>

#include <algorithm>

#include "runtime/cuda/check.hpp"
#include "runtime/cuda/cuda_device.hpp"
#include "runtime/cuda/ops/launch.hpp"

namespace mgplan::runtime::cuda {

/// The lanes of one block; see portable.hpp for the contract. Sums have the order of a HostTeam with the same number of lanes.
class BlockTeam {
public:
    static constexpr int kMostLanes = 256;

    template <class Work>
    __device__ void each(std::int64_t count, Work work) const {
        for (std::int64_t i = threadIdx.x; i < count; i += blockDim.x) work(i);
    }

    template <class Value, class Join, class Term>
    __device__ Value reduce(std::int64_t count, Value start, Join join, Term term) const {
        Value value = start;
        for (std::int64_t i = threadIdx.x; i < count; i += blockDim.x) value = join(value, term(i));
        return join_lanes(value, join);
    }

    /// Two packs of each lane are under way at once.
    template <int N, class Load, class Work>
    __device__ void each_pack(std::int64_t count, Load load, Work work) const {
        const std::int64_t packs = count / N, step = blockDim.x;
        std::int64_t pack = threadIdx.x;
        for (; pack + step < packs; pack += 2 * step) {
            const auto one = load(Width<N>{}, pack * N);
            const auto other = load(Width<N>{}, (pack + step) * N);
            work(Width<N>{}, pack * N, one);
            work(Width<N>{}, (pack + step) * N, other);
        }
        if (pack < packs) work(Width<N>{}, pack * N, load(Width<N>{}, pack * N));
        const std::int64_t left = packs * N + threadIdx.x;
        if (left < count) work(Width<1>{}, left, load(Width<1>{}, left));
    }
    template <int N, class Value, class Join, class Load, class Term>
    __device__ Value reduce_packs(std::int64_t count, Value start, Join join, Load load, Term term) const {
        const std::int64_t packs = count / N, step = blockDim.x;
        Value value = start;
        std::int64_t pack = threadIdx.x;
        for (; pack + step < packs; pack += 2 * step) {
            const auto one = load(Width<N>{}, pack * N);
            const auto other = load(Width<N>{}, (pack + step) * N);
            for (int k = 0; k < N; ++k) value = join(value, term(one, k));
            for (int k = 0; k < N; ++k) value = join(value, term(other, k));
        }
        if (pack < packs) {
            const auto one = load(Width<N>{}, pack * N);
            for (int k = 0; k < N; ++k) value = join(value, term(one, k));
        }
        const std::int64_t left = packs * N + threadIdx.x;
        if (left < count) value = join(value, term(load(Width<1>{}, left), 0));
        return join_lanes(value, join);
    }

    template <class Wanted, class Work>
    __device__ void select(std::int64_t count, Wanted wanted, Work work) const {
        __shared__ int totals[kMostLanes / 32];
        const unsigned lane = threadIdx.x % 32, warp = threadIdx.x / 32, warps = blockDim.x / 32;
        std::int64_t found = 0;
        for (std::int64_t begin = 0; begin < count; begin += blockDim.x) {
            const std::int64_t i = begin + threadIdx.x;
            const bool mine = i < count && wanted(i);
            const unsigned votes = __ballot_sync(0xffffffffU, mine);
            __syncthreads();  // everybody has read the totals of the stretch before
            if (lane == 0) totals[warp] = __popc(votes);
            __syncthreads();
            std::int64_t before = found;
            for (unsigned w = 0; w < warps; ++w) {
                if (w < warp) before += totals[w];
                found += totals[w];
            }
            if (mine) work(i, before + __popc(votes & ((1U << lane) - 1U)));
        }
    }

    template <class Work>
    __device__ void once(Work work) const {
        if (threadIdx.x == 0) work();
    }
    __device__ void barrier() const { __syncthreads(); }
    template <class Value, int Count>
    __device__ Value* shared() const {
        __shared__ Value values[Count];
        return values;
    }
    template <class State, class... Phases>
    __device__ void phases(Phases... work) const {
        State state;
        run_phases(state, work...);
    }

private:
    template <class State, class Phase, class... Others>
    __device__ void run_phases(State& state, Phase& work, Others&... others) const {
        // Hidden from the compiler, so that values computed from it are not kept in registers from phase to phase and from team to team.
        int lane = static_cast<int>(threadIdx.x);
        asm volatile("" : "+r"(lane));
        work(lane, state);
        if constexpr (sizeof...(others) > 0) {
            __syncthreads();
            run_phases(state, others...);
        }
    }
    /// Joins one value of each lane, in halves; every lane gets the result.
    template <class Value, class Join>
    __device__ Value join_lanes(Value value, Join join) const {
        __shared__ Value values[kMostLanes];
        const unsigned lane = threadIdx.x;
        __syncthreads();  // everybody has read the result of the reduction before
        values[lane] = value;
        __syncthreads();
        unsigned half = blockDim.x / 2;
        if constexpr (std::is_arithmetic_v<Value>) {
            for (; half >= 32; half /= 2) {
                if (lane < half) values[lane] = join(values[lane], values[lane + half]);
                __syncthreads();
            }
            if (lane < 32) {
                value = values[lane];
                for (unsigned step = 16; step > 0; step /= 2) value = join(value, __shfl_down_sync(0xffffffffU, value, step));
                if (lane == 0) values[0] = value;
            }
            __syncthreads();
        } else {
            for (; half > 0; half /= 2) {
                if (lane < half) values[lane] = join(values[lane], values[lane + half]);
                __syncthreads();
            }
        }
        return values[0];
    }
};

template <class Body>
__global__ void run_each(Body body, std::int64_t count) {
    const std::int64_t step = static_cast<std::int64_t>(gridDim.x) * blockDim.x;
    for (std::int64_t i = static_cast<std::int64_t>(blockIdx.x) * blockDim.x + threadIdx.x; i < count; i += step) body(i);
}

/// Two packs of each thread are under way at once.
template <int N, class Body>
__global__ void __launch_bounds__(256) run_packs(Body body, std::int64_t count) {
    const std::int64_t step = static_cast<std::int64_t>(gridDim.x) * blockDim.x, packs = count / N;
    const std::int64_t first = static_cast<std::int64_t>(blockIdx.x) * blockDim.x + threadIdx.x;
    std::int64_t pack = first;
    for (; pack + step < packs; pack += 2 * step) {
        const auto one = body.template load<N>(pack * N);
        const auto other = body.template load<N>((pack + step) * N);
        body.template finish<N>(pack * N, one);
        body.template finish<N>((pack + step) * N, other);
    }
    if (pack < packs) body.template finish<N>(pack * N, body.template load<N>(pack * N));
    for (std::int64_t i = packs * N + first; i < count; i += step) body.template finish<1>(i, body.template load<1>(i));
}

/// Number of teams of a body that must fit on a multiprocessor: the compiler limits registers for it. 0: no limit.
template <class Body>
constexpr int teams_at_once() {
    if constexpr (requires { Body::kTeamsAtOnce; }) return Body::kTeamsAtOnce;
    return 0;
}

template <class Body>
__global__ void __launch_bounds__(BlockTeam::kMostLanes, teams_at_once<Body>()) run_teams(Body body, std::int64_t count) {
    for (std::int64_t i = blockIdx.x; i < count; i += gridDim.x) {
        body(BlockTeam{}, i);
        __syncthreads();  // a row's last reads and writes lie before the next row's first
    }
}

class CudaLauncher {
public:
    explicit CudaLauncher(CudaDevice& device) : device_(device) {}
    static CudaLauncher of(model::Device& device) { return CudaLauncher(static_cast<CudaDevice&>(device)); }

    template <class Body>
    void each(std::int64_t count, const Body& body) const {
        if (count == 0) return;
        constexpr int kLanes = 256;
        constexpr std::int64_t kMostBlocks = std::int64_t{1} << 20;
        const auto blocks = static_cast<unsigned>(std::min((count + kLanes - 1) / kLanes, kMostBlocks));
        run_each<<<blocks, kLanes, 0, device_.stream()>>>(body, count);
        MGPLAN_CUDA(cudaGetLastError());
    }
    template <int N, class Body>
    void packs(std::int64_t count, const Body& body) const {
        if (count == 0) return;
        constexpr int kLanes = 256;
        constexpr std::int64_t kMostBlocks = std::int64_t{1} << 20, kShare = std::int64_t{2} * N * kLanes;  // of a block
        const auto blocks = static_cast<unsigned>(std::min((count + kShare - 1) / kShare, kMostBlocks));
        run_packs<N><<<blocks, kLanes, 0, device_.stream()>>>(body, count);
        MGPLAN_CUDA(cudaGetLastError());
    }
    template <class Body>
    void teams(std::int64_t count, int lanes, const Body& body) const {
        if (count == 0) return;
        MGPLAN_ASSERT(lanes >= 32 && lanes <= BlockTeam::kMostLanes, "a team fits its shared memory");
        constexpr std::int64_t kMostBlocks = std::int64_t{1} << 20;
        run_teams<<<static_cast<unsigned>(std::min(count, kMostBlocks)), lanes, 0, device_.stream()>>>(body, count);
        MGPLAN_CUDA(cudaGetLastError());
    }
    void copy(void* to, const void* from, std::int64_t bytes) const { device_.copy_on_device(to, from, bytes); }
    void zero(void* memory, std::int64_t bytes) const { device_.zero_memory(memory, bytes); }
    void gemm(const Gemm& gemm) const { device_.products().multiply(gemm); }
    [[nodiscard]] FusedLibrary* library() const { return device_.attention_library(); }

private:
    CudaDevice& device_;
};

}  // namespace mgplan::runtime::cuda
