#include "runtime/comm/nccl/nccl_world.hpp"

#include <algorithm>
#include <cstring>
#include <set>
#include <string_view>
#include <utility>

#include <fmt/core.h>

#include "runtime/comm/nccl/message_channels.hpp"
#include "runtime/comm/nccl/nccl_communicator.hpp"
#include "runtime/comm/nccl/nccl_library.hpp"
#include "runtime/comm/nccl/nccl_state.hpp"
#include "runtime/cuda/check.hpp"

namespace mgplan::runtime::cuda {

using model::CommunicationError;

namespace {

/// Messages between stages, and buckets of gradients and parameters (model/training/rank_trainer.cpp).
bool runs_beside_layers(std::string_view group) {
    return is_pipeline(group) || group == "dp-cp" || group == "expert:dp";
}

class World final : public NcclWorldInterface {
public:
    World(CudaDevice& device, int rank, int size, const Bootstrap& bootstrap, const NcclOptions& options)
        : size_(size), state_(std::make_shared<NcclState>(device, rank, options)) {
        if (size == 1) return;
        std::vector<std::byte> bytes(sizeof(ncclUniqueId));
        if (rank == 0) {
            ncclUniqueId id;
            if (const ncclResult_t result = nccl().ncclGetUniqueId(&id); result != ncclSuccess) {
                throw CommunicationError(fmt::format("rank 0: making NCCL's id failed: {} ({})", nccl().ncclGetErrorString(result),
                                                     nccl().ncclGetLastError(nullptr)));
            }
            std::memcpy(bytes.data(), &id, sizeof(id));
        }
        bytes = bootstrap(bytes);
        if (bytes.size() != sizeof(ncclUniqueId)) {
            throw RunError(fmt::format("rank {} got {} bytes for NCCL's id of {}", rank, bytes.size(), sizeof(ncclUniqueId)));
        }
        ncclUniqueId id;
        std::memcpy(&id, bytes.data(), sizeof(id));
        ncclConfig_t config = NCCL_CONFIG_INITIALIZER;
        config.blocking = 0;
        world_ = state_->prepare("world");
        state_->perform(
            *world_, [&] { return nccl().ncclCommInitRankConfig(&world_->communicator, size, id, rank, &config); }, "joining the world");
        state_->made(*world_);
    }

    model::World view() override {
        return {state_->rank(), size_,
                [this](const std::string& group, std::span<const std::int32_t> ranks) { return join(group, ranks); }};
    }

    const model::CollectiveCounter& traffic() const override { return state_->traffic(); }
    void abort(const std::string& reason) noexcept override { state_->abort(reason); }

private:
    /// Every rank of the world calls it, those that are in no group of it too: they get nullptr.
    std::shared_ptr<NcclGroup> split(const std::string& text, bool beside_layers, bool member, int color, int place) {
        ncclConfig_t config = NCCL_CONFIG_INITIALIZER;
        config.blocking = 0;
        config.splitShare = 0;  // groups that overlap run at the same time
        auto group = state_->prepare(text, beside_layers);
        state_->perform(
            *world_,
            [&] {
                return nccl().ncclCommSplit(world_->communicator, member ? color : NCCL_SPLIT_NOCOLOR, place, &group->communicator,
                                            &config);
            },
            "splitting off group " + text);
        if (member) state_->settle(*group, ncclInProgress, "joining group " + text);
        state_->made(*group);
        return member ? group : nullptr;
    }

    /// One message each way between neighbours, as one operation of NCCL on all channels. The first between two ranks of a communicator,
    /// each way, connects them, for which either one's host waits until the other has issued its half (ncclTransportP2pSetup() in NCCL's
    /// transport.cc): later, members that each send first would wait in a circle. Chunks in a V send both ways.
    void connect(const std::vector<std::shared_ptr<NcclGroup>>& channels, int size, int place) {
        const std::set<int> neighbours{(place + 1) % size, (place + size - 1) % size};
        const auto message = [&](model::CollectiveKind kind, int sender, auto call) {
            const auto& channel = channels[static_cast<std::size_t>(channel_of(sender, size))];
            state_->hold(
                channel, kind, [call, channel, state = state_.get()] { return call(channel->live(), state->stream_of(*channel)); },
                "connecting the members of group " + channel->text);
        };
        for (const int peer : neighbours) {
            message(model::CollectiveKind::send, place, [peer, from = state_->flag()](ncclComm_t over, cudaStream_t on) {
                return nccl().ncclSend(from, 1, ncclFloat32, peer, over, on);
            });
        }
        std::size_t received = 0;
        for (const int peer : neighbours) {
            message(model::CollectiveKind::receive, peer, [peer, to = state_->flag(++received)](ncclComm_t over, cudaStream_t on) {
                return nccl().ncclRecv(to, 1, ncclFloat32, peer, over, on);
            });
        }  // with the last receive all are issued: there is one for each send
    }

    std::unique_ptr<model::Communicator> join(const std::string& name, std::span<const std::int32_t> ranks) {
        const int place = model::place_in_group(ranks, state_->rank(), size_), size = static_cast<int>(ranks.size());
        if (size_ == 1) return make_nccl_communicator(state_, {}, name, 1, 0);
        const std::string text = model::group_text(name, ranks);
        const int color = *std::min_element(ranks.begin(), ranks.end());
        const bool beside = runs_beside_layers(name);
        std::vector<std::shared_ptr<NcclGroup>> channels{split(text, beside, size > 1, color, place)};
        if (is_pipeline(name)) {
            for (int i = 1; i < kMostChannels; ++i) channels.push_back(split(text, beside, i < message_channels(size), color, place));
        }
        while (!channels.empty() && channels.back() == nullptr) channels.pop_back();
        if (channels.size() > 1) connect(channels, size, place);
        return make_nccl_communicator(state_, std::move(channels), name, size, place);
    }

    int size_;
    std::shared_ptr<NcclState> state_;
    std::shared_ptr<NcclGroup> world_;
};

}  // namespace

std::unique_ptr<NcclWorldInterface> make_nccl_world(CudaDevice& device, int rank, int size, const Bootstrap& bootstrap,
                                                    const NcclOptions& options) {
    MGPLAN_ASSERT(size >= 1 && rank >= 0 && rank < size, "the rank is inside the world");
    if (size > 1 && !nccl_unavailable().empty()) {
        throw RunError(fmt::format(
            "{}, and {} processes talk through it; put it where the loader finds it (LD_LIBRARY_PATH), or run all ranks in one process",
            nccl_unavailable(), size));
    }
    MGPLAN_CUDA(cudaSetDevice(device.ordinal()));  // events, streams and communicators are made on the thread's card
    return std::make_unique<World>(device, rank, size, bootstrap, options);
}

std::string nccl_version() {
    if (!nccl_unavailable().empty()) return {};
    int version = 0;  // 22809 is 2.28.9
    if (nccl().ncclGetVersion(&version) != ncclSuccess) return {};
    return fmt::format("{}.{}.{}", version / 10000, version / 100 % 100, version % 100);
}

}  // namespace mgplan::runtime::cuda
