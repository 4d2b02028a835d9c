// Ranks that connect to each other while strangers knock at the same ports.
#include "runtime/comm/socket/connect_ranks.hpp"

#include <netinet/in.h>

#include <cstring>
#include <thread>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "plan/errors.hpp"

namespace mgplan::runtime::connect_ranks_test {
namespace {

using namespace std::chrono_literals;
using ::testing::AllOf;
using ::testing::HasSubstr;

constexpr int kSize = 4;

/// Ranks of one process, which met on a free port.
class ConnectRanks : public ::testing::Test {
protected:
    ConnectRanks() {
        options.host = "127.0.0.1";
        options.port = local_address(listen_at(resolve("127.0.0.1", 0).front())).port();
        options.secret = "a secret of this test";
        options.size = kSize;
        options.join_deadline = 20s;
    }

    /// Each rank's body on a thread of its own; what it threw.
    template <class Body>
    std::vector<std::string> on_all_ranks(Body body) {
        std::vector<std::string> said(kSize);
        std::vector<std::thread> ranks;
        for (int rank = 0; rank < kSize; ++rank) {
            ranks.emplace_back([&, rank] {
                try {
                    RendezvousOptions own = options;
                    own.rank = rank;
                    Rendezvous rendezvous(own);
                    body(rendezvous, own);
                } catch (const std::exception& error) {
                    said[static_cast<std::size_t>(rank)] = error.what();
                }
            });
        }
        for (std::thread& each : ranks) each.join();
        return said;
    }

    /// Silent connections to where a rank listens for data, as it told the others.
    static std::vector<Socket> knock(Rendezvous& rendezvous, int at, int times) {
        const std::string told = rendezvous.get("data of rank " + std::to_string(at));
        Address address;
        address.length = sizeof(sockaddr_in);
        std::memcpy(&address.storage, told.data(), address.length);
        std::vector<Socket> strangers;
        for (int i = 0; i < times; ++i) strangers.push_back(connect_to(address, {}, std::chrono::steady_clock::now() + 10s));
        return strangers;
    }

    RendezvousOptions options;
};

/// Every rank tells every other one its number over the connection that it has to it.
void exchange(const std::vector<Socket>& connections, int own) {
    for (int rank = 0; rank < kSize; ++rank) {
        if (rank == own) continue;
        std::string word(1, static_cast<char>('0' + own));
        ASSERT_EQ(write_some(connections[static_cast<std::size_t>(rank)], word), Transfer::moved);
    }
    for (int rank = 0; rank < kSize; ++rank) {
        if (rank == own) continue;
        std::string heard;
        for (const auto until = std::chrono::steady_clock::now() + 20s; heard.empty() && std::chrono::steady_clock::now() < until;) {
            if (read_some(connections[static_cast<std::size_t>(rank)], heard) == Transfer::ended) break;
            std::this_thread::sleep_for(1ms);
        }
        EXPECT_EQ(heard, std::string(1, static_cast<char>('0' + rank))) << own;
    }
}

TEST_F(ConnectRanks, GiveEveryPairOneConnection) {
    for (const std::string& said : on_all_ranks([](Rendezvous&rendezvous, const RendezvousOptions&own) {
             exchange(connect_ranks(rendezvous, own), own.rank);
             rendezvous.leave();
         }))
        EXPECT_EQ(said, "");
}

TEST_F(ConnectRanks, AreNotKeptOutByManySilentStrangers) {
    const auto begin = std::chrono::steady_clock::now();
    for (const std::string& said : on_all_ranks([](Rendezvous&rendezvous, const RendezvousOptions&own) {
             // Strangers are before rank 3 at the ports of ranks 0 and 1, and stay.
             std::vector<Socket> first, second;
             if (own.rank == 3) {
                 first = knock(rendezvous, 0, 150);
                 second = knock(rendezvous, 1, 150);
             }
             exchange(connect_ranks(rendezvous, own), own.rank);
             rendezvous.leave();
         }))
        EXPECT_EQ(said, "");
    EXPECT_LT(std::chrono::steady_clock::now() - begin, options.hello_deadline) << "nobody waits until strangers are dropped";
}

TEST_F(ConnectRanks, NameStrangersWhereARankDoesNotCome) {
    options.join_deadline = 2s;
    const auto said = on_all_ranks([](Rendezvous& rendezvous, const RendezvousOptions& own) {
        std::vector<Socket> strangers;
        RendezvousOptions patient = own;
        if (own.rank != 0) patient.join_deadline = 20s;  // rank 0 is to speak first
        if (own.rank == 3) {
            strangers = knock(rendezvous, 0, 80);
            std::this_thread::sleep_for(4s);
            throw RunError("it never came");
        }
        static_cast<void>(connect_ranks(rendezvous, patient));
    });
    EXPECT_THAT(said[0], AllOf(HasSubstr("rank 0: ranks 3 did not connect to it within 2 s"),
                               HasSubstr("connected and sent no whole greeting (from 127.0.0.1)")));
    EXPECT_EQ(said[3], "it never came");
}

}  // namespace
}  // namespace mgplan::runtime::connect_ranks_test
