#include "simulator/memory/offloaded_state.hpp"

#include <algorithm>
#include <cstddef>

#include "plan/training/offload.hpp"

namespace mgplan::simulator {
namespace {

/// Bytes of moments that return at once: a chunk of `asked` bytes, or the largest parameter's moments if they are more.
std::int64_t bytes_of_chunk(std::int64_t asked, std::int64_t moving, std::int64_t largest) {
    return std::min(moving, std::max(asked, largest));
}

}  // namespace

std::int64_t moment_bytes(OptimizerKind optimizer, const TrainingSpec& training) {
    const int moments = kept_moments(optimizer);
    return bytes_of(training.exp_avg_dtype) + (moments - 1) * bytes_of(training.exp_avg_sq_dtype);
}

// Megatron-core hybrid_optimizer.py, HybridDeviceOptimizer with param_update_in_fp32. On the host a parameter has an fp32 copy, a gradient
// and two moments; of the others the device keeps everything in fp32, whatever types the precision-aware optimizer requests, and gradients
// too if they are narrower. Parameters return in fp32 and become 16 bits on the device, gradients leave it in fp32.
void divide_between_devices(ModelStateBytes& bytes, std::int64_t owned, std::int64_t largest, bool mixed, const TrainingSpec& training) {
    const std::int64_t away = offloaded_elements(owned, training.offload.optimizer);
    const bool widened = bytes_of(training.grad_dtype) < bytes_of(Dtype::fp32);
    constexpr std::int64_t kMoments = 2 * 4, kCopy = 4;
    bytes.optimizer = (owned - away) * (kMoments + (mixed ? kCopy : 0) + (widened ? kCopy : 0));
    bytes.host = away * (kMoments + 2 * kCopy);
    const std::int64_t travels = std::min(largest > 0 ? largest : owned, away);
    // On one stream the next copy reuses the memory of the one before.
    const bool both_ways = mixed && widened && training.megatron.overlap_host_update;
    bytes.staged = mixed || widened ? travels * kCopy * (both_ways ? 2 : 1) : 0;
}

// Branch dev of Megatron-LM at d48bd6be, core/optimizer/cpu_offloading/chunked_optimizer_state_offload.py (before 9050d4c5
// optimizer_state_offloader.py): without chunks the whole state is on the device during the update; with chunks only main parameters are,
// and moments are summed by optimizer. State that never leaves is updated first, then one chunk after the other.
std::int64_t keep_between_updates(ModelStateBytes& bytes, const BufferElements& elements, const OwnedElements& owned, std::int64_t main,
                                  const TrainingSpec& training) {
    const std::int64_t asked = training.megatron.offload_chunk_mib << 20;
    const bool muon = training.megatron.optimizer == OptimizerKind::muon;
    std::int64_t most = 0;
    for (const bool matrices : {false, true}) {
        const std::int64_t here = matrices ? owned.matrices : owned.all - owned.matrices;
        const std::int64_t away = offloaded_elements(here, training.offload.states);
        const std::int64_t each = moment_bytes(muon && !matrices ? OptimizerKind::adam : training.megatron.optimizer, training);
        const std::int64_t moments = away * each;
        bytes.optimizer -= away * main + moments;
        bytes.host += away * main + moments;
        bytes.update += away * main + (asked == 0 ? moments : 0);
        if (asked == 0) {
            most += std::max(here - away, away);
            continue;
        }
        const std::int64_t largest = std::min((matrices ? elements.largest_matrix : elements.largest) * each, moments);
        most += std::max(here - away, bytes_of_chunk(asked, moments, largest) / each);
        // The first to step is Muon's optimizer of the matrices, or Adam's of dense parameters (optimizer/__init__.py).
        const std::size_t turn = muon ? (matrices ? 0 : 1) : (elements.expert ? 1 : 0);
        bytes.moving[turn] += moments;
        bytes.largest_moving[turn] = std::max(bytes.largest_moving[turn], largest);
    }
    return most;
}

// An optimizer has two chunks on the device while it steps, and every optimizer has its first chunk there once the gradients are complete
// (training.py, train_step).
std::int64_t most_moving(const ModelStateBytes& bytes, const TrainingSpec& training) {
    const std::int64_t asked = training.megatron.offload_chunk_mib << 20;
    const auto chunk = [&](std::size_t turn) { return bytes_of_chunk(asked, bytes.moving[turn], bytes.largest_moving[turn]); };
    const auto two = [&](std::size_t turn) { return std::min(bytes.moving[turn], 2 * chunk(turn)); };
    return std::max(two(0) + chunk(1), two(1));
}

}  // namespace mgplan::simulator
