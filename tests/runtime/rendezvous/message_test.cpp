// Messages of a rendezvous: what is written is read, and what is no message is refused before it is kept.
#include "runtime/rendezvous/message.hpp"

#include <random>

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <rapidcheck.h>

namespace mgplan::runtime::message_test {
namespace {

std::string text(std::mt19937_64& random, std::size_t most) {
    std::string bytes(std::uniform_int_distribution<std::size_t>(0, most)(random), '\0');
    for (char& each : bytes) each = static_cast<char>(random());
    return bytes;
}

TEST(RendezvousMessage, IsReadAsItWasWrittenHoweverTheStreamIsCut) {
    std::mt19937_64 random(7);
    MessageReader reader;
    for (int turn = 0; turn < 200; ++turn) {
        std::vector<RendezvousMessage> written;
        std::string wire;
        for (int i = 0; i < 3; ++i) {
            written.push_back({static_cast<MessageKind>(1 + random() % 9), static_cast<std::int32_t>(random()), text(random, kMostKeyBytes),
                               text(random, turn == 0 ? kMostValueBytes : 40)});
            wire += to_wire(written.back());
        }
        std::vector<RendezvousMessage> read;
        while (!wire.empty()) {
            const std::size_t piece = std::min<std::size_t>(wire.size(), 1 + random() % 97);
            reader.feed(wire.substr(0, piece));
            wire.erase(0, piece);
            while (auto message = reader.next()) read.push_back(std::move(*message));
        }
        ASSERT_EQ(read, written);
        ASSERT_EQ(reader.held(), 0U);
    }
}

TEST(RendezvousMessage, AnyBytesAreMessagesOrAnErrorAndNeverHeldBeyondTheBound) {
    std::mt19937_64 random(11);
    int errors = 0, messages = 0;
    for (int turn = 0; turn < 20'000; ++turn) {
        MessageReader reader;
        reader.limit(kMostHelloBytes);
        // Noise, or a message with some of its bytes changed, cut or doubled.
        std::string bytes = text(random, 64);
        if (turn % 2 == 0) {
            bytes = to_wire({static_cast<MessageKind>(1 + random() % 9), 3, text(random, 20), text(random, 60)});
            for (int i = 0; i < 2; ++i) bytes[random() % bytes.size()] = static_cast<char>(random());
            if (turn % 4 == 0) bytes.resize(random() % bytes.size() + 1);
        }
        try {
            for (const char byte : bytes) {
                reader.feed({&byte, 1});
                while (auto message = reader.next()) {
                    ++messages;
                    ASSERT_LE(message->key.size(), kMostKeyBytes);
                    ASSERT_LE(message->value.size(), kMostHelloBytes);
                }
                ASSERT_LE(reader.held(), 4 + kMostHelloBytes);
            }
        } catch (const MessageError& error) {
            ++errors;
            ASSERT_NE(std::string(error.what()), "");
        }
    }
    EXPECT_GT(errors, 1000) << "the changes are to be of every sort";
    EXPECT_GT(messages, 1000);
}

TEST(RendezvousMessage, OfTooGreatALengthIsRefusedByItsFirstFourBytes) {
    MessageReader reader;
    reader.feed(std::string("\xff\xff\xff\x7f", 4));
    EXPECT_THROW((void)reader.next(), MessageError);
}

TEST(RendezvousMessage, SecretsAreEqualWhenAllOfThemIs) {
    EXPECT_TRUE(equal_secrets("0123456789abcdef", "0123456789abcdef"));
    EXPECT_FALSE(equal_secrets("0123456789abcdeg", "0123456789abcdef"));
    EXPECT_FALSE(equal_secrets("0123456789abcdef0123456789abcdef", "0123456789abcdef")) << "twice the secret is another";
    EXPECT_FALSE(equal_secrets("0123456789abcde", "0123456789abcdef"));
    EXPECT_FALSE(equal_secrets("", "0123456789abcdef"));
    EXPECT_FALSE(equal_secrets(std::string(300, '\0'), "0123456789abcdef"));
}

}  // namespace
}  // namespace mgplan::runtime::message_test
