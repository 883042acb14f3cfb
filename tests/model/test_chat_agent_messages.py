"""Messages between agents, for services that know none."""

from unspool_server.model.chat_messages import chat_messages


def test_a_message_of_an_agent_reaches_a_chat_service_as_a_users_word() -> None:
    content = [{"type": "input_text", "text": "Message Type: FINAL_ANSWER\nPayload:\ndone"}]
    item = {"type": "agent_message", "author": "/root/kid", "recipient": "/root", "content": content}
    assert chat_messages([item]) == [{"role": "user", "content": content[0]["text"]}]
