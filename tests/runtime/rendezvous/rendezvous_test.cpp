// Processes that find each other over TCP, and what each sort of trouble makes of them.
#include "runtime/rendezvous/rendezvous.hpp"

#include <poll.h>

#include <atomic>
#include <memory>
#include <random>
#include <thread>

#include <fmt/core.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tests/support/child_process.hpp"

namespace mgplan::runtime::rendezvous_test {
namespace {

using namespace std::chrono_literals;
using ::testing::AllOf;
using ::testing::ContainsRegex;
using ::testing::HasSubstr;
using Variables = std::map<std::string, std::string>;

/// Nobody listened there a moment ago.
int free_port() {
    const Socket socket = listen_at(resolve("127.0.0.1", 0).front());
    return local_address(socket).port();
}

const std::string kSecret = "a secret of this test";

class RendezvousOfProcesses : public ::testing::Test {
protected:
    using Child = std::unique_ptr<tests::ChildProcess>;

    Child start(int rank, int size, const std::string& task, const Variables& others = {}) const {
        Variables variables{{"RANK", std::to_string(rank)}, {"WORLD_SIZE", std::to_string(size)},  {"LOCAL_RANK", std::to_string(rank)},
                            {"MASTER_ADDR", "127.0.0.1"},   {"MASTER_PORT", std::to_string(port)}, {"MGPLAN_SECRET", kSecret}};
        for (const auto& [name, value] : others) variables[name] = value;
        return std::make_unique<tests::ChildProcess>(MGPLAN_RANK_PROGRAM, std::vector{task}, variables);
    }
    std::vector<Child> start_all(int size, const std::string& task) const {
        std::vector<Child> children;
        for (int rank = 0; rank < size; ++rank) children.push_back(start(rank, size, task));
        return children;
    }
    static void expect_all_there(const std::vector<Child>& children) {
        for (const auto& child : children) ASSERT_TRUE(child->says("is there")) << child->err();
    }

    int port = free_port();
    Socket stranger() const { return connect_to(resolve("127.0.0.1", port).front(), {}, std::chrono::steady_clock::now() + 10s); }
    /// Rank 0 listens.
    Socket stranger_once_it_listens() const {
        for (const auto until = std::chrono::steady_clock::now() + 20s; std::chrono::steady_clock::now() < until;) {
            if (Socket socket = stranger(); socket.open()) return socket;
            std::this_thread::sleep_for(5ms);
        }
        return {};
    }
};

TEST_F(RendezvousOfProcesses, ExchangeValuesAndLeaveTogether) {
    for (const int size : {1, 3, 8}) {
        const auto children = start_all(size, "leave");
        for (const auto& child : children) EXPECT_EQ(child->code(), 0) << size << ": " << child->err();
    }
}

TEST_F(RendezvousOfProcesses, AKilledRankEndsTheOthersWhichNameItAndItsOperation) {
    const auto children = start_all(3, "work");
    expect_all_there(children);
    std::this_thread::sleep_for(300ms);  // three heartbeats
    children[1]->signal(SIGKILL);
    for (const int rank : {0, 2}) {
        EXPECT_EQ(children[static_cast<std::size_t>(rank)]->code(10s), 4);
        EXPECT_THAT(
            children[static_cast<std::size_t>(rank)]->err(),
            ContainsRegex("rank 1 \\(127.0.0.1:[0-9]+\\) ended without a word; last seen in all_reduce in group tp \\(ranks 0, 1, 2\\)"));
    }
}

TEST_F(RendezvousOfProcesses, AStoppedRankIsSilentAndEndsTheOthers) {
    const auto children = start_all(3, "work");
    expect_all_there(children);
    children[2]->signal(SIGSTOP);
    for (const int rank : {0, 1}) {
        EXPECT_EQ(children[static_cast<std::size_t>(rank)]->code(10s), 4);
        EXPECT_THAT(children[static_cast<std::size_t>(rank)]->err(), ContainsRegex("rank 2 .* has been silent for [0-9]+ ms"));
    }
    children[2]->signal(SIGCONT);
    EXPECT_EQ(children[2]->code(10s), 4) << "and ends itself once it goes on";
}

TEST_F(RendezvousOfProcesses, TheEndOfRankZeroIsNoticedToo) {
    const auto children = start_all(3, "work");
    expect_all_there(children);
    children[0]->signal(SIGKILL);
    for (const int rank : {1, 2}) {
        EXPECT_EQ(children[static_cast<std::size_t>(rank)]->code(10s), 4);
        EXPECT_THAT(children[static_cast<std::size_t>(rank)]->err(), ContainsRegex("rank 0 .* ended without a word"));
    }
}

TEST_F(RendezvousOfProcesses, ASilentRankZeroIsNoticedToo) {
    const auto children = start_all(2, "work");
    expect_all_there(children);
    children[0]->signal(SIGSTOP);
    EXPECT_EQ(children[1]->code(10s), 4);
    EXPECT_THAT(children[1]->err(), ContainsRegex("rank 0 .* has been silent for [0-9]+ ms"));
}

TEST_F(RendezvousOfProcesses, AnAbortReachesEverybodyWithItsReason) {
    const auto children = start_all(3, "throw");
    for (const auto& child : children) EXPECT_EQ(child->code(10s), 4);
    for (const int rank : {0, 2})
        EXPECT_THAT(children[static_cast<std::size_t>(rank)]->err(), HasSubstr("hears: rank 1 failed: the disk is full"));
}

TEST_F(RendezvousOfProcesses, AMissingRankIsNamed) {
    const auto zero = start(0, 4, "impatient"), two = start(2, 4, "");
    for (const auto& child : {zero.get(), two.get()}) {
        EXPECT_EQ(child->code(10s), 4);
        EXPECT_THAT(child->err(), ContainsRegex("ranks 1, 3 of 4 have not come to 127.0.0.1:[0-9]+ within 1 s"));
    }
}

TEST_F(RendezvousOfProcesses, ARankWithAnotherSecretIsRefusedAndCounted) {
    const auto wrong = start(1, 2, "", {{"MGPLAN_SECRET", "another secret of this test"}});
    const auto zero = start(0, 2, "impatient");
    EXPECT_EQ(wrong->code(10s), 2);
    EXPECT_THAT(wrong->err(), HasSubstr("its MGPLAN_SECRET is not rank 0's"));
    EXPECT_EQ(zero->code(10s), 4);
    EXPECT_THAT(zero->err(), AllOf(HasSubstr("rank 1 of 2 has not come"), HasSubstr("1 had another MGPLAN_SECRET")));
}

TEST_F(RendezvousOfProcesses, AnotherWorldAndTwoRanksOfOneNumberEndTheJobForAll) {
    {
        const auto zero = start(0, 2, ""), one = start(1, 3, "");
        for (const auto& child : {zero.get(), one.get()}) {
            EXPECT_EQ(child->code(10s), 2);
            EXPECT_THAT(child->err(), AllOf(HasSubstr("'mgplan rendezvous 1, world of 3' and rank 0 'mgplan rendezvous 1, world of 2'"),
                                            HasSubstr("WORLD_SIZE")));
        }
    }
    {
        const auto zero = start(0, 3, ""), one = start(1, 3, ""), same = start(1, 3, "");
        for (const auto& child : {zero.get(), one.get(), same.get()}) {
            EXPECT_EQ(child->code(10s), 2);
            EXPECT_THAT(child->err(), HasSubstr("two processes say they are rank 1"));
        }
    }
}

TEST_F(RendezvousOfProcesses, ATakenPortIsSaid) {
    const Socket taken = listen_at(resolve("127.0.0.1", port).front());
    ASSERT_TRUE(taken.open());
    const auto zero = start(0, 2, "");
    EXPECT_EQ(zero->code(10s), 2);
    EXPECT_THAT(zero->err(), AllOf(HasSubstr(fmt::format("port {} of 127.0.0.1:{} is taken", port, port)), HasSubstr("MGPLAN_PORT")));
}

TEST_F(RendezvousOfProcesses, ARankZeroThatNeverAnswersIsSaid) {
    const auto one = start(1, 2, "impatient");
    EXPECT_EQ(one->code(10s), 4);
    EXPECT_THAT(one->err(), HasSubstr("rank 0 did not answer at 127.0.0.1"));
}

TEST_F(RendezvousOfProcesses, WhatIsMissingInTheEnvironmentIsSaidTogether) {
    const auto one = start(1, 2, "", {{"MASTER_ADDR", ""}, {"MASTER_PORT", "zero"}, {"MGPLAN_SECRET", "short"}});
    EXPECT_EQ(one->code(10s), 2);
    EXPECT_THAT(one->err(), AllOf(HasSubstr("MASTER_ADDR is not set"), HasSubstr("MASTER_PORT"), HasSubstr("MGPLAN_SECRET has 5 bytes")));
}

TEST_F(RendezvousOfProcesses, GarbageAndSilenceOnThePortHarmNobody) {
    const auto zero = start(0, 2, "leave");
    std::vector<Socket> silent;
    std::mt19937_64 random(3);
    for (int i = 0; i < 100; ++i) {
        Socket socket = stranger_once_it_listens();
        ASSERT_TRUE(socket.open());
        std::string noise(static_cast<std::size_t>(i) * 7, '\0');
        for (char& each : noise) each = static_cast<char>(random());
        if (i % 10 == 1) noise = "GET / HTTP/1.1\r\n\r\n";
        // A message, but no hello; and a hello that never ends.
        if (i % 10 == 2) noise = to_wire({MessageKind::abort, 4, "", "end it all"});
        if (i % 10 == 3) noise = to_wire({MessageKind::hello, 1, "", kSecret}).substr(0, 9);
        static_cast<void>(write_some(socket, noise));
        if (i % 3 == 0) silent.push_back(std::move(socket));
    }
    const auto one = start(1, 2, "leave");
    EXPECT_EQ(one->code(), 0) << one->err();
    EXPECT_EQ(zero->code(), 0) << zero->err();
}

TEST_F(RendezvousOfProcesses, ManySilentStrangersKeepNoRankOut) {
    const auto zero = start(0, 2, "leave");
    std::vector<Socket> silent;
    for (int i = 0; i < 200; ++i) silent.push_back(stranger_once_it_listens());
    const auto one = start(1, 2, "leave");
    EXPECT_EQ(one->code(), 0) << one->err();
    EXPECT_EQ(zero->code(), 0) << zero->err();
}

TEST_F(RendezvousOfProcesses, StrangersThatSayALittleAgainAndAgainKeepNoRankOut) {
    const auto zero = start(0, 2, "leave");
    std::vector<Socket> slow;
    for (int i = 0; i < 80; ++i) slow.push_back(stranger_once_it_listens());
    std::atomic<bool> done = false;
    std::thread drip([&] {
        // A long greeting, a byte at a time.
        const std::string greeting = to_wire({MessageKind::hello, 1, "", std::string(kMostHelloBytes - 100, 'x')});
        for (std::size_t i = 0; !done; i = (i + 1) % greeting.size()) {
            for (const Socket& socket : slow) {
                std::string byte = greeting.substr(i, 1);
                static_cast<void>(write_some(socket, byte));
            }
            std::this_thread::sleep_for(20ms);
        }
    });
    const auto one = start(1, 2, "leave");
    EXPECT_EQ(one->code(), 0) << one->err();
    EXPECT_EQ(zero->code(), 0) << zero->err();
    done = true;
    drip.join();
}

TEST_F(RendezvousOfProcesses, AGreetingHasOneDeadlineHoweverOftenABitOfItComes) {
    const auto zero = start(0, 2, "hurried");  // 300 ms for a greeting
    Socket slow = stranger_once_it_listens();
    const std::string greeting = to_wire({MessageKind::hello, 1, rendezvous_protocol(2), kSecret});
    const auto begin = std::chrono::steady_clock::now();
    bool dropped = false;
    for (std::size_t i = 0; i + 1 < greeting.size() && !dropped; ++i) {
        std::string byte = greeting.substr(i, 1), answer;
        dropped = write_some(slow, byte) == Transfer::ended || read_some(slow, answer) == Transfer::ended;
        std::this_thread::sleep_for(50ms);
    }
    EXPECT_TRUE(dropped);
    EXPECT_LT(std::chrono::steady_clock::now() - begin, 2s);
    const auto one = start(1, 2, "leave");
    EXPECT_EQ(one->code(), 0) << one->err();
    EXPECT_EQ(zero->code(), 0) << zero->err();
}

TEST_F(RendezvousOfProcesses, StrangersAreNamedWhereARankIsMissing) {
    const auto zero = start(0, 2, "impatient");
    std::vector<Socket> strangers;
    for (int i = 0; i < 70; ++i) strangers.push_back(stranger_once_it_listens());
    std::string noise = "GET / HTTP/1.1\r\n\r\n", wrong = to_wire({MessageKind::hello, 1, rendezvous_protocol(2), "no secret"});
    ASSERT_EQ(write_some(strangers[68], noise), Transfer::moved);
    ASSERT_EQ(write_some(strangers[69], wrong), Transfer::moved);
    EXPECT_EQ(zero->code(10s), 4);
    EXPECT_THAT(zero->err(), AllOf(HasSubstr("rank 1 of 2 has not come"), HasSubstr("; 1 had another MGPLAN_SECRET (from 127.0.0.1)"),
                                   HasSubstr("; 1 sent what is no greeting of a rank (from 127.0.0.1)"),
                                   ContainsRegex("; [0-9]+ connected and sent no whole greeting \\(from 127.0.0.1\\)")));
}

TEST_F(RendezvousOfProcesses, ARankWaitsLongerThanRankZeroTakesToAnswer) {
    std::unique_ptr<Socket> busy = std::make_unique<Socket>(listen_at(resolve("127.0.0.1", port).front()));
    const auto one = start(1, 2, "leave");
    pollfd ready{busy->file(), POLLIN, 0};
    ASSERT_EQ(::poll(&ready, 1, 20'000), 1);
    {
        const Socket connection = accept_from(*busy);
        ASSERT_TRUE(connection.open());
        // Longer than a rank that has answered may be silent (1.5 s).
        EXPECT_EQ(one->code(2500ms), -1) << one->err();
        busy.reset();
    }
    const auto zero = start(0, 2, "leave");
    EXPECT_EQ(one->code(), 0) << one->err();
    EXPECT_EQ(zero->code(), 0) << zero->err();
}

TEST_F(RendezvousOfProcesses, APortThatTakesConnectionsAndSaysNothingIsSaid) {
    const Socket listener = listen_at(resolve("127.0.0.1", port).front());
    const auto one = start(1, 2, "impatient");
    EXPECT_EQ(one->code(20s), 4);
    EXPECT_THAT(one->err(),
                AllOf(HasSubstr("rank 1: rank 0 did not answer at 127.0.0.1"), HasSubstr("takes connections and says nothing")));
}

TEST_F(RendezvousOfProcesses, ARankThatDoesNotReadIsNotWaitedFor) {
    const auto zero = start(0, 2, "work");
    const Socket socket = stranger_once_it_listens();
    ASSERT_TRUE(socket.open());
    std::string said = to_wire({MessageKind::hello, 1, rendezvous_protocol(2), kSecret});
    said +=
        to_wire({MessageKind::set, 0, "greeting 1", "from 1"}) + to_wire({MessageKind::set, 0, "long", std::string(kMostValueBytes, 'x')});
    // It asks on and on, speaks of its life all the while, and takes no answer.
    const std::string question = to_wire({MessageKind::get, 0, "long", ""}) + to_wire({MessageKind::heartbeat, 0, "", "in a test"});
    const auto until = std::chrono::steady_clock::now() + 20s;
    while (zero->code(0ms) < 0 && std::chrono::steady_clock::now() < until) {
        if (said.empty()) said = question;
        if (write_some(socket, said) != Transfer::moved) std::this_thread::sleep_for(1ms);
    }
    EXPECT_EQ(zero->code(0ms), 4);
    EXPECT_THAT(zero->err(), ContainsRegex("rank 1 .* does not read what it is sent"));
}

TEST_F(RendezvousOfProcesses, SomethingElseOnThePortIsNoRankZero) {
    const Socket listener = listen_at(resolve("127.0.0.1", port).front());
    const auto one = start(1, 2, "");
    pollfd ready{listener.file(), POLLIN, 0};
    ASSERT_EQ(::poll(&ready, 1, 20'000), 1);
    const Socket connection = accept_from(listener);
    ASSERT_TRUE(connection.open());
    std::string answer = "HTTP/1.1 400 Bad Request\r\n\r\n";
    ASSERT_EQ(write_some(connection, answer), Transfer::moved);
    EXPECT_EQ(one->code(10s), 2);
    EXPECT_THAT(one->err(), HasSubstr("is no rank 0 of mgplan"));
}

TEST(RendezvousOptions, TakeAnotherPortThanTorchrunsAgent) {
    Variables variables{{"MASTER_ADDR", "node7"}, {"MASTER_PORT", "29500"}, {"MGPLAN_SECRET", kSecret}};
    const auto options = [&] {
        return rendezvous_options({1, 2, std::nullopt, RankSource::torchrun}, [&](std::string_view name) -> std::optional<std::string> {
            const auto found = variables.find(std::string(name));
            return found == variables.end() ? std::nullopt : std::optional(found->second);
        });
    };
    EXPECT_EQ(options().port, 29500);
    variables["TORCHELASTIC_USE_AGENT_STORE"] = "True";
    EXPECT_EQ(options().port, 29501);
    variables["MGPLAN_PORT"] = "4711";
    EXPECT_EQ(options().port, 4711);
    variables["MGPLAN_INTERFACE"] = "no-such-interface";
    EXPECT_EQ(options().interface, "no-such-interface");
    try {
        const Rendezvous rendezvous([&] {
            auto of_rank_0 = options();
            of_rank_0.rank = 0;
            return of_rank_0;
        }());
        FAIL() << "there is no such interface";
    } catch (const ConfigError& error) {
        EXPECT_THAT(error.what(), AllOf(HasSubstr("no-such-interface is no interface of this machine"), HasSubstr("there are lo")));
    }
}

}  // namespace
}  // namespace mgplan::runtime::rendezvous_test
