#include "runtime/comm/socket/socket_world.hpp"

#include <exception>
#include <span>
#include <utility>

#include <fmt/core.h>

#include "runtime/comm/socket/socket_communicator.hpp"
#include "runtime/comm/socket/socket_state.hpp"

namespace mgplan::runtime {
namespace {

std::unique_ptr<model::Communicator> join(const std::shared_ptr<SocketState>& state, const std::string& name,
                                          std::span<const std::int32_t> ranks) {
    auto group = std::make_shared<SocketGroup>();
    group->place = model::place_in_group(ranks, state->rank(), state->size());
    group->name = name;
    group->text = model::group_text(name, ranks);
    group->ranks.assign(ranks.begin(), ranks.end());
    group->sent.assign(ranks.size(), 0);
    group->received.assign(ranks.size(), 0);
    state->check("joining group " + group->text);
    // The whole list, where the text names the first of many.
    std::string mine = name;
    for (const auto rank : ranks) mine += fmt::format(" {}", rank);
    const bool first = group->place == 0;
    if (first) group->number = state->next_group();
    const SocketFrame frame{.kind = model::CollectiveKind::barrier, .stage = SocketStage::joining};
    std::vector<std::int64_t> turns;
    for (const auto rank : ranks) {
        turns.push_back(rank == state->rank() ? 0 : state->next_join(rank));
        if (rank == state->rank()) continue;
        SocketFrame own = frame;
        own.sequence = turns.back();
        own.whole_bytes = static_cast<std::int64_t>(group->number);
        state->send(rank, own, std::as_bytes(std::span(mine)), nullptr);
    }
    for (std::size_t member = 0; member < ranks.size(); ++member) {
        if (ranks[member] == state->rank()) continue;
        SocketFrame said;
        const auto bytes = state->wait_for(*group, static_cast<int>(member), SocketStage::joining, turns[member], frame.kind, &said);
        const std::string theirs(reinterpret_cast<const char*>(bytes.data()), bytes.size());
        if (theirs != mine) {
            const std::string reason = fmt::format("rank {} joins group {} while rank {} joins group {}", state->rank(), mine,
                                                   ranks[member], theirs.substr(0, 200));
            state->abort(reason);
            throw model::CommunicationError(reason);
        }
        if (member == 0) group->number = static_cast<std::uint64_t>(said.whole_bytes);
    }
    return std::make_unique<SocketCommunicator>(state, std::move(group));
}

}  // namespace

SocketWorld::SocketWorld(int rank, std::vector<Socket> connections, SocketOptions options)
    : state_(std::make_shared<SocketState>(rank, std::move(connections), std::move(options))), exceptions_(std::uncaught_exceptions()) {}

SocketWorld::~SocketWorld() {
    if (std::uncaught_exceptions() > exceptions_) {
        state_->abort(fmt::format("rank {} was ended by an error", state_->rank()));
        state_->drop();
    } else {
        state_->flush();
    }
}

model::World SocketWorld::view() {
    return {state_->rank(), state_->size(),
            [state = state_](const std::string& group, std::span<const std::int32_t> ranks) { return join(state, group, ranks); }};
}

model::CollectiveCounter& SocketWorld::traffic() {
    return state_->traffic();
}

}  // namespace mgplan::runtime
