#include "runtime/comm/mpi/mpi_world.hpp"

#include <array>
#include <utility>

#include <fmt/core.h>

#include "plan/text/error_reason.hpp"
#include "runtime/comm/mpi/mpi_communicator.hpp"
#include "runtime/comm/mpi/mpi_state.hpp"

namespace mgplan::runtime {
namespace {

// FNV-1a over the name and the ranks: equal for members that mean the same group.
std::uint64_t fingerprint(const std::string& group, std::span<const std::int32_t> ranks) {
    std::uint64_t hash = 0xcbf29ce484222325U;
    const auto mix = [&](std::uint64_t value) { hash = (hash ^ value) * 0x100000001b3U; };
    for (const char c : group) mix(static_cast<unsigned char>(c));
    for (const auto rank : ranks) mix(static_cast<std::uint64_t>(rank) + 0x100U);
    return hash;
}

}  // namespace

bool mpi_available() {
    return true;
}

MpiWorld::MpiWorld(MpiOptions options) : state_(std::make_shared<State>(std::move(options))) {}

MpiWorld::~MpiWorld() = default;

int MpiWorld::rank() const {
    return state_->rank;
}

int MpiWorld::size() const {
    return state_->size;
}

std::unique_ptr<model::Communicator> MpiWorld::join(const std::string& group, std::span<const std::int32_t> ranks) {
    static constexpr auto kWhat = "the meeting of the members";
    const int member = model::place_in_group(ranks, state_->rank, state_->size);
    const std::string& text = state_->intern(model::group_text(group, ranks));
    MPI_Comm made = MPI_COMM_NULL;
    {
        const Whereabouts::Visit visit(*state_->whereabouts, kWhat, text);
        MPI_Group all = MPI_GROUP_NULL;
        MPI_Group members = MPI_GROUP_NULL;
        state_->check(MPI_Comm_group(state_->world, &all), "MPI_Comm_group", kWhat, text);
        state_->check(MPI_Group_incl(all, static_cast<int>(ranks.size()), ranks.data(), &members), "MPI_Group_incl", kWhat, text);
        state_->check(MPI_Comm_create_group(state_->world, members, 0, &made), "MPI_Comm_create_group", kWhat, text);
        MPI_Group_free(&members);
        MPI_Group_free(&all);
        MPI_Comm_set_errhandler(made, MPI_ERRORS_RETURN);
        const std::uint64_t mine = fingerprint(group, ranks);
        std::vector<std::uint64_t> all_members(ranks.size());
        state_->check(MPI_Allgather(&mine, 1, MPI_UINT64_T, all_members.data(), 1, MPI_UINT64_T, made), "MPI_Allgather", kWhat, text);
        for (std::size_t other = 0; other < ranks.size(); ++other) {
            if (all_members[other] != mine) {
                throw model::CommunicationError(
                    fmt::format("rank {} asked for group {}, rank {} for another one: all ranks ask for their groups in one order",
                                state_->rank, text, ranks[other]));
            }
        }
    }
    return std::make_unique<MpiCommunicator>(state_, made, group, text, static_cast<int>(ranks.size()), member);
}

model::World MpiWorld::view() {
    return {state_->rank, state_->size,
            [this](const std::string& group, std::span<const std::int32_t> ranks) { return join(group, ranks); }};
}

void MpiWorld::run(const std::function<void()>& body) {
    std::string what;
    int code = 4;
    try {
        return body();
    } catch (const ConfigError& error) {
        what = error.what();
        code = 2;
    } catch (const std::exception& error) {
        what = reason_of(error);
    } catch (...) {
        what = "something that is no std::exception was thrown";
    }
    abort(fmt::format("rank {} failed: {}; {}", rank(), what, state_->whereabouts->text()), code);
}

void MpiWorld::abort(const std::string& reason, int code) noexcept {
    state_->abort(reason, code);
}

std::vector<std::string> MpiWorld::gather_names(const std::string& mine) {
    constexpr std::size_t kLength = 256;
    std::array<char, kLength> name{};
    mine.copy(name.data(), kLength - 1);
    std::vector<char> all(state_->rank == 0 ? kLength * static_cast<std::size_t>(state_->size) : 0);
    const std::string& everyone = state_->intern("of all ranks");
    MPI_Request request = MPI_REQUEST_NULL;
    state_->check(MPI_Igather(name.data(), kLength, MPI_CHAR, all.data(), kLength, MPI_CHAR, 0, state_->world, &request), "MPI_Igather",
                  "the gathering of names", everyone);
    state_->wait(request, "the gathering of names", everyone);
    std::vector<std::string> names;
    for (std::size_t at = 0; at < all.size(); at += kLength) names.emplace_back(all.data() + at);
    return names;
}

model::CollectiveCounter& MpiWorld::traffic() {
    return state_->traffic;
}

}  // namespace mgplan::runtime
