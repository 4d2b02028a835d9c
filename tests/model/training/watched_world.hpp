#pragma once
// A world whose collectives that are begun early can be watched, or made to end where they begin.

#include <functional>
#include <memory>
#include <string>
#include <utility>

#include "model/communicator/world.hpp"

namespace mgplan::model {

/// What is told: "begin all_gather in tp", "wait for all_gather in tp".
using TellCollective = std::function<void(const std::string&)>;

struct WatchOptions {
    TellCollective tell{};  ///< may be empty
    bool at_once = false;   ///< each collective is waited for where it begins
};

/// Passes everything on to another communicator, which reports and counts.
class WatchedCommunicator final : public Communicator {
public:
    WatchedCommunicator(std::unique_ptr<Communicator> inner, WatchOptions options)
        : Communicator(inner->group(), inner->size(), inner->rank()), inner_(std::move(inner)), options_(std::move(options)) {}

    void abort(const std::string& reason) noexcept override { inner_->abort(reason); }

private:
    class Watched final : public Pending {
    public:
        Watched(std::unique_ptr<Pending> pending, TellCollective tell, std::string what)
            : pending_(std::move(pending)), tell_(std::move(tell)), what_(std::move(what)) {}
        void wait() override {
            if (tell_) tell_("wait for " + what_);
            pending_->wait();
        }

    private:
        std::unique_ptr<Pending> pending_;
        TellCollective tell_;
        std::string what_;
    };
    class Done final : public Pending {
    public:
        void wait() override {}
    };

    std::unique_ptr<Pending> watched(CollectiveKind kind, std::unique_ptr<Pending> pending) const {
        const std::string what = std::string(to_string(kind)) + " in " + group();
        if (options_.tell && size() > 1) options_.tell("begin " + what);
        auto whole = std::make_unique<Watched>(std::move(pending), size() > 1 ? options_.tell : TellCollective{}, what);
        if (options_.at_once) whole->wait();
        return options_.at_once ? std::unique_ptr<Pending>(std::make_unique<Done>()) : std::unique_ptr<Pending>(std::move(whole));
    }

    std::unique_ptr<Pending> do_all_reduce(const Tensor& tensor, Reduction reduction) override {
        return watched(CollectiveKind::all_reduce, inner_->start_all_reduce(tensor, reduction));
    }
    std::unique_ptr<Pending> do_all_gather(const Tensor& part, const Tensor& whole) override {
        return watched(CollectiveKind::all_gather, inner_->start_all_gather(part, whole));
    }
    std::unique_ptr<Pending> do_reduce_scatter(const Tensor& whole, const Tensor& part, Reduction reduction) override {
        return watched(CollectiveKind::reduce_scatter, inner_->start_reduce_scatter(whole, part, reduction));
    }
    std::unique_ptr<Pending> do_all_gather_rows(const Tensor& part, const Tensor& whole, std::span<const std::int64_t> rows) override {
        inner_->all_gather_rows(part, whole, rows);
        return std::make_unique<Done>();
    }
    std::unique_ptr<Pending> do_reduce_scatter_rows(const Tensor& whole, const Tensor& part, std::span<const std::int64_t> rows,
                                                    Reduction reduction) override {
        inner_->reduce_scatter_rows(whole, part, rows, reduction);
        return std::make_unique<Done>();
    }
    std::unique_ptr<Pending> do_all_to_all(const Tensor& from, const Tensor& to, std::span<const std::int64_t> send_rows,
                                           std::span<const std::int64_t> receive_rows) override {
        inner_->all_to_all(from, to, send_rows, receive_rows);
        return std::make_unique<Done>();
    }
    std::unique_ptr<Pending> do_broadcast(const Tensor& tensor, int root) override {
        inner_->broadcast(tensor, root);
        return std::make_unique<Done>();
    }
    std::unique_ptr<Pending> do_send(const Tensor& tensor, int peer) override { return inner_->start_send(tensor, peer); }
    std::unique_ptr<Pending> do_receive(const Tensor& tensor, int peer) override { return inner_->start_receive(tensor, peer); }
    void do_barrier() override { inner_->barrier(); }

    std::unique_ptr<Communicator> inner_;
    WatchOptions options_;
};

inline World watched_world(World world, WatchOptions options) {
    return {world.rank, world.size,
            [join = std::move(world.join), options = std::move(options)](const std::string& group, std::span<const std::int32_t> ranks)
                -> std::unique_ptr<Communicator> { return std::make_unique<WatchedCommunicator>(join(group, ranks), options); }};
}

}  // namespace mgplan::model
