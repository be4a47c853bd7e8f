-- What a person does: opens a chat, asks when it is connected, and reads the answer. (A question
-- that comes with the command makes CodeCompanion start a second process in the place of the first.)
local function on(event, act)
  vim.api.nvim_create_autocmd("User", {
    pattern = "CodeCompanion" .. event,
    once = true,
    callback = vim.schedule_wrap(function()
      act(require("codecompanion").last_chat())
    end),
  })
end

on("ACPSessionPost", function(chat)
  chat:add_buf_message({ role = "user", content = "Hello there" })
  chat:submit()
end)
on("ChatDone", function(chat)
  io.stdout:write(table.concat(vim.api.nvim_buf_get_lines(chat.bufnr, 0, -1, false), "\n"))
  vim.cmd("qa!")
end)
vim.cmd("CodeCompanionChat")
