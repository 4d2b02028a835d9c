#include "simulator/memory/dispatcher_buffers.hpp"

#include <algorithm>

#include "plan/text/rounding.hpp"

namespace mgplan::simulator {

std::int64_t hybrid_ep_bytes(const GroupPath& path, const DispatcherBuffers& buffers) {
    if (path.single()) return 0;
    const std::int64_t here = path.ranks_per_domain, domains = divide_up(path.ranks, here);
    const std::int64_t row = 2 * buffers.hidden, probabilities = 4 * buffers.experts_per_rank * here, scales = 4 * (buffers.hidden / 128);
    const std::int64_t most = buffers.tokens * here * domains;
    std::int64_t bytes = most * (row + probabilities + scales);
    if (domains > 1) {
        bytes += buffers.tokens * (row + probabilities * domains + scales);
        bytes += (domains - 1) * buffers.tokens * (3 * (row + probabilities) + scales);
    }
    return bytes;
}

std::int64_t deep_ep_bytes(const GroupPath& path, const DispatcherBuffers& buffers) {
    if (path.single()) return 0;
    constexpr std::int64_t kPeers = 8, kRdmaChunk = 128;
    // In addition to a row: source, indices and weights of up to 128 experts, 128 scales.
    constexpr std::int64_t kMeta = 8 + 128 * (8 + 4 + 4);
    const std::int64_t channels = (buffers.multiprocessors > 0 ? buffers.multiprocessors : 20) / 2;
    const std::int64_t near = std::min(path.ranks, kPeers), nodes = divide_up(path.ranks, kPeers);
    const std::int64_t chunk = path.ranks <= 8 ? 256 : path.ranks <= 64 ? 288 : path.ranks <= 96 ? 480 : path.ranks <= 128 ? 560 : 720;
    const std::int64_t row = 2 * buffers.hidden + kMeta;
    std::int64_t bytes = channels * near * (chunk * row + (2 * nodes + 3) * 4);
    if (nodes > 1) bytes += channels * nodes * 2 * (kRdmaChunk * (row + 16) + (2 * kPeers + 2) * 4);
    return bytes;
}

}  // namespace mgplan::simulator
